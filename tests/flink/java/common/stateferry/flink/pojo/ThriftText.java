package stateferry.flink.pojo;

import org.apache.thrift.TBase;
import org.apache.thrift.TException;
import org.apache.thrift.TFieldIdEnum;
import org.apache.thrift.protocol.TField;
import org.apache.thrift.protocol.TProtocol;
import org.apache.thrift.protocol.TProtocolUtil;
import org.apache.thrift.protocol.TStruct;
import org.apache.thrift.protocol.TType;

/** A struct of one text, as Thrift's compiler makes one. */
public final class ThriftText implements TBase<ThriftText, ThriftText.Fields> {
    private static final TField TEXT = new TField("text", TType.STRING, (short) 1);

    /** Its only field. */
    public enum Fields implements TFieldIdEnum {
        TEXT;

        @Override
        public short getThriftFieldId() {
            return 1;
        }

        @Override
        public String getFieldName() {
            return "text";
        }
    }

    private String text;

    public ThriftText() {}

    public ThriftText(String text) {
        this.text = text;
    }

    @Override
    public void read(TProtocol in) throws TException {
        in.readStructBegin();
        for (TField field = in.readFieldBegin(); field.type != TType.STOP; field = in.readFieldBegin()) {
            if (field.id == 1) {
                text = in.readString();
            } else {
                TProtocolUtil.skip(in, field.type);
            }
            in.readFieldEnd();
        }
        in.readStructEnd();
    }

    @Override
    public void write(TProtocol out) throws TException {
        out.writeStructBegin(new TStruct("ThriftText"));
        out.writeFieldBegin(TEXT);
        out.writeString(text);
        out.writeFieldEnd();
        out.writeFieldStop();
        out.writeStructEnd();
    }

    @Override
    public Fields fieldForId(int id) {
        return id == 1 ? Fields.TEXT : null;
    }

    @Override
    public boolean isSet(Fields field) {
        return text != null;
    }

    @Override
    public Object getFieldValue(Fields field) {
        return text;
    }

    @Override
    public void setFieldValue(Fields field, Object value) {
        text = (String) value;
    }

    @Override
    public ThriftText deepCopy() {
        return new ThriftText(text);
    }

    @Override
    public void clear() {
        text = null;
    }

    @Override
    public int compareTo(ThriftText other) {
        return text.compareTo(other.text);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof ThriftText && ((ThriftText) other).text.equals(text);
    }

    @Override
    public int hashCode() {
        return text.hashCode();
    }

    @Override
    public String toString() {
        return text;
    }
}
