package stateferry.benchmark;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.rocksdb.Checkpoint;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.CompressionType;
import org.rocksdb.DBOptions;
import org.rocksdb.FlushOptions;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksIterator;
import org.rocksdb.WriteOptions;

/**
 * Changes the last byte of each n-th value of a database, as a job would between two checkpoints, and makes a checkpoint
 * of it. What was there before stays in its files.
 *
 * <p>Arguments: folder of the database, folder of the checkpoint, column family, n, whether to compact afterwards.
 */
public final class ChangeKeys {
    private ChangeKeys() {}

    public static void main(String[] args) throws Exception {
        int every = Integer.parseInt(args[3]);
        RocksDB.loadLibrary();
        ColumnFamilyOptions family =
                new ColumnFamilyOptions()
                        .setCompressionType(CompressionType.SNAPPY_COMPRESSION)
                        .setWriteBufferSize(2L << 30)
                        .setDisableAutoCompactions(true);
        List<ColumnFamilyDescriptor> families = new ArrayList<>();
        int state = -1;
        for (byte[] name : RocksDB.listColumnFamilies(new Options(), args[0])) {
            state = new String(name, StandardCharsets.UTF_8).equals(args[2]) ? families.size() : state;
            families.add(new ColumnFamilyDescriptor(name, family));
        }
        List<ColumnFamilyHandle> opened = new ArrayList<>();
        try (RocksDB database = RocksDB.open(new DBOptions(), args[0], families, opened)) {
            ColumnFamilyHandle changed = opened.get(state);
            try (RocksIterator rows = database.newIterator(changed);
                    WriteOptions options = new WriteOptions().setDisableWAL(true)) {
                int row = 0;
                for (rows.seekToFirst(); rows.isValid(); rows.next()) {
                    if (row++ % every == 0) {
                        byte[] value = rows.value();
                        value[value.length - 1] ^= 1;
                        database.put(changed, options, rows.key(), value);
                    }
                }
            }
            database.flush(new FlushOptions().setWaitForFlush(true), changed);
            if (Boolean.parseBoolean(args[4])) {
                database.compactRange(changed);
            }
            Checkpoint.create(database).createCheckpoint(args[1]);
            opened.forEach(ColumnFamilyHandle::close);
        }
    }
}
