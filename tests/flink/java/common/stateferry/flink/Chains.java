package stateferry.flink;

import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.rocksdb.Checkpoint;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.DBOptions;
import org.rocksdb.FlinkCompactionFilter;
import org.rocksdb.FlushOptions;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksIterator;

/** A database with Flink's merge operator and compaction filter that goes on from snapshot to snapshot. */
final class Chains implements AutoCloseable {
    private static final HexFormat HEX = HexFormat.of();

    private final JsonNode command;
    private final List<ColumnFamilyHandle> handles = new ArrayList<>();
    private volatile long now;
    private RocksDB db;

    private Chains(JsonNode command) {
        this.command = command;
    }

    private List<ColumnFamilyDescriptor> families() {
        List<ColumnFamilyDescriptor> families = new ArrayList<>();
        families.add(new ColumnFamilyDescriptor(RocksDB.DEFAULT_COLUMN_FAMILY));
        for (JsonNode family : command.get("families")) {
            ColumnFamilyOptions options = new ColumnFamilyOptions().setMergeOperatorName("stringappendtest");
            String expiring = family.get("expiring").asText();
            if (!expiring.isEmpty()) {
                var filter = new FlinkCompactionFilter.FlinkCompactionFilterFactory(() -> now);
                filter.configure(config(expiring, command.get("ttl").asLong()));
                options.setCompactionFilterFactory(filter);
            }
            byte[] name = family.get("name").asText().getBytes(StandardCharsets.UTF_8);
            families.add(new ColumnFamilyDescriptor(name, options));
        }
        return families;
    }

    private static FlinkCompactionFilter.Config config(String kind, long ttl) {
        return switch (kind) {
            case "value" -> FlinkCompactionFilter.Config.createForValue(ttl, 1);
            case "map" -> FlinkCompactionFilter.Config.createForMap(ttl, 1);
            default -> throw new IllegalArgumentException("expected a kind of state, found " + kind);
        };
    }

    /** After each step, what the database has is in the folder {@code target}, as RocksDB's own checkpoint. */
    static void write(JsonNode command, Path scratch) throws Exception {
        RocksDB.loadLibrary();
        try (Chains chain = new Chains(command)) {
            chain.open(Files.createDirectories(scratch.resolve("0")));
            int opened = 0;
            for (JsonNode step : command.get("steps")) {
                chain.now = step.get("now").asLong();
                for (JsonNode operation : step.get("operations")) {
                    if (operation.get(0).asText().equals("restart")) {
                        Path next = scratch.resolve("" + ++opened);
                        chain.checkpoint(next);
                        chain.close();
                        chain.open(next);
                    } else {
                        chain.carryOut(operation);
                    }
                }
                chain.checkpoint(Path.of(step.get("target").asText()));
            }
        }
    }

    private void open(Path folder) throws Exception {
        DBOptions options = new DBOptions().setCreateIfMissing(true).setCreateMissingColumnFamilies(true);
        db = RocksDB.open(options, folder.toString(), families(), handles);
    }

    private void checkpoint(Path target) throws Exception {
        try (Checkpoint checkpoint = Checkpoint.create(db)) {
            checkpoint.createCheckpoint(target.toString());
        }
    }

    private void carryOut(JsonNode operation) throws Exception {
        ColumnFamilyHandle family = handles.get(operation.get(1).asInt() + 1);
        byte[] key = HEX.parseHex(operation.path(2).asText());
        byte[] value = HEX.parseHex(operation.path(3).asText());
        switch (operation.get(0).asText()) {
            case "put" -> db.put(family, key, value);
            case "merge" -> db.merge(family, key, value);
            case "delete" -> db.delete(family, key);
            case "range delete" -> db.deleteRange(family, key, value);
            case "flush" -> db.flush(new FlushOptions().setWaitForFlush(true), family);
            case "compact" -> db.compactRange(family);
            default -> throw new IllegalArgumentException("expected an operation, found " + operation);
        }
    }

    /** Opens a database as Flink does, and lists every entry of each column family. */
    static void show(Path database, Path expected) throws Exception {
        RocksDB.loadLibrary();
        List<ColumnFamilyDescriptor> families = new ArrayList<>();
        for (byte[] name : RocksDB.listColumnFamilies(new Options(), database.toString())) {
            var options = new ColumnFamilyOptions().setMergeOperatorName("stringappendtest");
            families.add(new ColumnFamilyDescriptor(name, options));
        }
        List<ColumnFamilyHandle> handles = new ArrayList<>();
        try (RocksDB db = RocksDB.openReadOnly(new DBOptions(), database.toString(), families, handles);
                Writer out = Files.newBufferedWriter(expected)) {
            for (int number = 0; number < families.size(); number++) {
                String name = new String(families.get(number).getName(), StandardCharsets.UTF_8);
                try (RocksIterator entries = db.newIterator(handles.get(number))) {
                    for (entries.seekToFirst(); entries.isValid(); entries.next()) {
                        out.write(name + " " + HEX.formatHex(entries.key()) + " " + HEX.formatHex(entries.value()) + "\n");
                    }
                    entries.status();
                }
            }
            handles.forEach(ColumnFamilyHandle::close);
        }
    }

    @Override
    public void close() {
        handles.forEach(ColumnFamilyHandle::close);
        handles.clear();
        db.close();
    }
}
