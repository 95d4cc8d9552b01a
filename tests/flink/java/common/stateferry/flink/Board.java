package stateferry.flink;

import java.io.BufferedWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import stateferry.flink.types.Json;

/** Where the subtasks of one running job, all in this JVM, and the code that runs the job meet. */
final class Board implements AutoCloseable {
    private static final Map<String, Board> BOARDS = new ConcurrentHashMap<>();

    /** Whether the job writes its contents, or reads what it was restored with. */
    final boolean writing;
    /** Timers that must fire before the job has shown all that it holds. */
    final AtomicInteger timersDue = new AtomicInteger();
    volatile boolean watermarkWanted;
    private final String id;
    private final Set<String> reports = ConcurrentHashMap.newKeySet();
    private final BufferedWriter writer;

    Board(String id, boolean writing, Path lines) throws IOException {
        this.id = id;
        this.writing = writing;
        this.writer = Files.newBufferedWriter(lines, StandardCharsets.US_ASCII);
        BOARDS.put(id, this);
    }

    static Board of(String id) {
        return BOARDS.get(id);
    }

    /** A subtask has written or shown all that it is to. */
    void report(String uid, int subtask) {
        reports.add(reportOf(uid, subtask));
    }

    boolean hasReports(Set<String> wanted) {
        return reports.containsAll(wanted);
    }

    static String reportOf(String uid, int subtask) {
        return uid + "#" + subtask;
    }

    String id() {
        return id;
    }

    synchronized void write(ObjectNode line) {
        try {
            writer.write(Json.text(line));
            writer.newLine();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public synchronized void close() throws IOException {
        BOARDS.remove(id);
        writer.close();
    }
}
