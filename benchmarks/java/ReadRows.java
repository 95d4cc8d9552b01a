package stateferry.benchmark;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.DBOptions;
import org.rocksdb.LRUCache;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksIterator;

/**
 * Reads rows of a database one by one, as MapState.get does, before and after RocksDB has compacted all of it.
 *
 * <p>Arguments: folder of the database, column family, how many rows to read. Prints the median of the nanoseconds of a
 * read twice.
 */
public final class ReadRows {
    private static final int ROUNDS = 3;

    private ReadRows() {}

    public static void main(String[] args) throws Exception {
        RocksDB.loadLibrary();
        BlockBasedTableConfig table = new BlockBasedTableConfig().setBlockCache(new LRUCache(512L << 20));
        ColumnFamilyOptions family =
                new ColumnFamilyOptions().setTableFormatConfig(table).setDisableAutoCompactions(true);
        List<ColumnFamilyDescriptor> families = new ArrayList<>();
        int state = -1;
        for (byte[] name : RocksDB.listColumnFamilies(new Options(), args[0])) {
            state = new String(name, StandardCharsets.UTF_8).equals(args[1]) ? families.size() : state;
            families.add(new ColumnFamilyDescriptor(name, family));
        }
        List<ColumnFamilyHandle> opened = new ArrayList<>();
        try (RocksDB database = RocksDB.open(new DBOptions(), args[0], families, opened)) {
            ColumnFamilyHandle read = opened.get(state);
            List<byte[]> keys = new ArrayList<>();
            long rows = database.getLongProperty(read, "rocksdb.estimate-num-keys");
            long every = Math.max(rows / Integer.parseInt(args[2]), 1);
            try (RocksIterator all = database.newIterator(read)) {
                long row = 0;
                for (all.seekToFirst(); all.isValid(); all.next()) {
                    if (row++ % every == 0) {
                        keys.add(all.key());
                    }
                }
            }
            Collections.shuffle(keys, new Random(1));
            System.out.println("median " + median(database, read, keys));
            database.compactRange(read);
            System.out.println("median " + median(database, read, keys));
            opened.forEach(ColumnFamilyHandle::close);
        }
    }

    /** Of the last round: those before it warm up the JVM and the caches. */
    private static long median(RocksDB database, ColumnFamilyHandle family, List<byte[]> keys) throws Exception {
        long[] times = new long[keys.size()];
        for (int round = 0; round < ROUNDS; round++) {
            for (int at = 0; at < times.length; at++) {
                long began = System.nanoTime();
                if (database.get(family, keys.get(at)) == null) {
                    throw new IllegalStateException("a row that the iterator has shown isn't found");
                }
                times[at] = System.nanoTime() - began;
            }
        }
        Arrays.sort(times);
        return times[times.length / 2];
    }
}
