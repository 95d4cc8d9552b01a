package stateferry.benchmark;

import java.nio.ByteBuffer;
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
import org.rocksdb.RocksDB;
import org.rocksdb.WriteBatch;
import org.rocksdb.WriteOptions;

/**
 * Writes a database as Flink's RocksDB does, with the rows of a {@code MapState<String, Long>}, and a checkpoint of it:
 * compacted, or in several runs, each of which is a file of level 0.
 *
 * <p>Arguments: folder of the database, folder of the checkpoint, column family, keys, entries of each key, runs, how
 * many neighbouring rows are in the same run. One run is compacted.
 */
public final class WriteRuns {
    private static final int KEY_GROUPS = 128;
    private static final int ROWS_AT_ONCE = 10_000;

    private WriteRuns() {}

    public static void main(String[] args) throws Exception {
        int keys = Integer.parseInt(args[3]);
        int entries = Integer.parseInt(args[4]);
        int runs = Integer.parseInt(args[5]);
        int together = Integer.parseInt(args[6]);
        RocksDB.loadLibrary();
        // Flink's default is snappy on each level. A run must not be flushed in parts, or compacted with others.
        ColumnFamilyOptions family =
                new ColumnFamilyOptions()
                        .setCompressionType(CompressionType.SNAPPY_COMPRESSION)
                        .setWriteBufferSize(2L << 30)
                        .setDisableAutoCompactions(true);
        DBOptions options = new DBOptions().setCreateIfMissing(true).setCreateMissingColumnFamilies(true);
        List<ColumnFamilyDescriptor> families =
                List.of(
                        new ColumnFamilyDescriptor(RocksDB.DEFAULT_COLUMN_FAMILY),
                        new ColumnFamilyDescriptor(args[2].getBytes(StandardCharsets.UTF_8), family));
        List<ColumnFamilyHandle> opened = new ArrayList<>();
        try (RocksDB database = RocksDB.open(options, args[0], families, opened)) {
            ColumnFamilyHandle state = opened.get(1);
            for (int run = 0; run < runs; run++) {
                write(database, state, keys, entries, run, runs, together);
                database.flush(new FlushOptions().setWaitForFlush(true), state);
            }
            if (runs == 1) {
                database.compactRange(state);
            }
            Checkpoint.create(database).createCheckpoint(args[1]);
            opened.forEach(ColumnFamilyHandle::close);
        }
    }

    /** Writes the rows of the run. Keys ascend with their numbers, inside a key group and from one to the next. */
    private static void write(
            RocksDB database, ColumnFamilyHandle state, int keys, int entries, int run, int runs, int together)
            throws Exception {
        try (WriteOptions options = new WriteOptions().setDisableWAL(true);
                WriteBatch batch = new WriteBatch()) {
            for (long row = (long) run * together; row < (long) keys * entries; row++) {
                if (row / together % runs != run) {
                    continue;
                }
                int key = (int) (row / entries);
                byte[] value = ByteBuffer.allocate(9).put((byte) 0).putLong(row).array();
                batch.put(state, key(key, (int) (row % entries), keys), value);
                if (batch.count() == ROWS_AT_ONCE) {
                    database.write(options, batch);
                    batch.clear();
                }
            }
            database.write(options, batch);
        }
    }

    /** The key group, the key and an empty namespace, the user key; strings as Flink writes short ones of ASCII. */
    private static byte[] key(int key, int entry, int keys) {
        byte[] name = String.format("customer-%08d", key).getBytes(StandardCharsets.US_ASCII);
        byte[] userKey = String.format("item%04d", entry).getBytes(StandardCharsets.US_ASCII);
        return ByteBuffer.allocate(1 + 1 + name.length + 1 + 1 + userKey.length)
                .put((byte) ((long) key * KEY_GROUPS / keys))
                .put((byte) (name.length + 1))
                .put(name)
                .put((byte) 0)
                .put((byte) (userKey.length + 1))
                .put(userKey)
                .array();
    }
}
