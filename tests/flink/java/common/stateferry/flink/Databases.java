package stateferry.flink;

import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.BloomFilter;
import org.rocksdb.BuiltinComparator;
import org.rocksdb.Checkpoint;
import org.rocksdb.ChecksumType;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.CompressionOptions;
import org.rocksdb.CompressionType;
import org.rocksdb.DBOptions;
import org.rocksdb.DataBlockIndexType;
import org.rocksdb.EnvOptions;
import org.rocksdb.IndexType;
import org.rocksdb.IngestExternalFileOptions;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksIterator;
import org.rocksdb.SstFileWriter;

/** Databases that RocksDB itself writes, with options that Flink doesn't set by itself, and what it finds in them. */
final class Databases {
    private static final HexFormat HEX = HexFormat.of();

    private Databases() {}

    /**
     * Carries out operations on one column family, copies the live files to {@code target}, and lists every entry.
     *
     * <p>An operation is its name with hexadecimal texts. Ends of files and compactions are operations as well.
     */
    static void write(JsonNode command, Path scratch, Path target, Path expected) throws Exception {
        RocksDB.loadLibrary();
        List<ColumnFamilyHandle> handles = new ArrayList<>();
        List<ColumnFamilyDescriptor> families = List.of(
                new ColumnFamilyDescriptor(RocksDB.DEFAULT_COLUMN_FAMILY),
                new ColumnFamilyDescriptor(bytes(command, "family"), options(command.get("options"))));
        DBOptions options = new DBOptions().setCreateIfMissing(true).setCreateMissingColumnFamilies(true);
        try (RocksDB db = RocksDB.open(options, scratch.toString(), families, handles)) {
            ColumnFamilyHandle state = handles.get(1);
            for (JsonNode operation : command.get("operations")) {
                carryOut(db, state, operation, scratch);
            }
            db.flush(new org.rocksdb.FlushOptions().setWaitForFlush(true), handles);
            try (Checkpoint checkpoint = Checkpoint.create(db)) {
                checkpoint.createCheckpoint(target.toString());
            }
            try (Writer out = Files.newBufferedWriter(expected); RocksIterator entries = db.newIterator(state)) {
                for (entries.seekToFirst(); entries.isValid(); entries.next()) {
                    out.write(HEX.formatHex(entries.key()) + " " + HEX.formatHex(entries.value()) + "\n");
                }
                entries.status();
            }
            handles.forEach(ColumnFamilyHandle::close);
        }
    }

    private static void carryOut(RocksDB db, ColumnFamilyHandle state, JsonNode operation, Path scratch)
            throws Exception {
        byte[] key = HEX.parseHex(operation.path(1).asText());
        byte[] value = HEX.parseHex(operation.path(2).asText());
        switch (operation.get(0).asText()) {
            case "put" -> db.put(state, key, value);
            case "merge" -> db.merge(state, key, value);
            case "delete" -> db.delete(state, key);
            case "single delete" -> db.singleDelete(state, key);
            case "range delete" -> db.deleteRange(state, key, value);
            case "flush" -> db.flush(new org.rocksdb.FlushOptions().setWaitForFlush(true), state);
            case "compact" -> db.compactRange(state);
            case "ingest" -> ingest(db, state, key, value, scratch.resolve("outside.sst"));
            default -> throw new IllegalArgumentException("expected an operation, found " + operation);
        }
    }

    private static void ingest(RocksDB db, ColumnFamilyHandle state, byte[] key, byte[] value, Path file)
            throws Exception {
        try (SstFileWriter writer = new SstFileWriter(new EnvOptions(), new Options())) {
            writer.open(file.toString());
            writer.put(key, value);
            writer.finish();
        }
        db.ingestExternalFile(state, List.of(file.toString()), new IngestExternalFileOptions());
    }

    private static ColumnFamilyOptions options(JsonNode wanted) throws Exception {
        ColumnFamilyOptions out = new ColumnFamilyOptions().setMergeOperatorName("stringappendtest");
        BlockBasedTableConfig table = new BlockBasedTableConfig().setBlockSize(512);
        wanted.fields().forEachRemaining(option -> {
            String value = option.getValue().asText();
            switch (option.getKey()) {
                case "compression" -> out.setCompressionType(CompressionType.valueOf(value));
                case "dictionary" -> out.setCompressionOptions(
                        new CompressionOptions().setMaxDictBytes(Integer.parseInt(value)));
                case "checksum" -> table.setChecksumType(ChecksumType.valueOf(value));
                case "format" -> table.setFormatVersion(Integer.parseInt(value));
                case "bloom" -> table.setFilterPolicy(new BloomFilter(Double.parseDouble(value), false));
                case "index" -> table.setIndexType(IndexType.valueOf(value));
                case "data index" -> table.setDataBlockIndexType(DataBlockIndexType.valueOf(value));
                case "partitioned filters" -> table.setPartitionFilters(Boolean.parseBoolean(value));
                case "delta" -> table.setUseDeltaEncoding(Boolean.parseBoolean(value));
                case "restarts" -> table.setBlockRestartInterval(Integer.parseInt(value))
                        .setIndexBlockRestartInterval(Integer.parseInt(value));
                case "metadata block" -> table.setMetadataBlockSize(Long.parseLong(value));
                case "comparator" -> out.setComparator(BuiltinComparator.valueOf(value));
                case "prefix" -> out.useFixedLengthPrefixExtractor(Integer.parseInt(value));
                default -> throw new IllegalArgumentException("expected an option, found " + option);
            }
        });
        return out.setTableFormatConfig(table);
    }

    private static byte[] bytes(JsonNode command, String field) {
        return command.get(field).asText().getBytes(StandardCharsets.UTF_8);
    }
}
