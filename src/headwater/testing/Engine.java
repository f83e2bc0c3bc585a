import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.BufferedOutputStream;
import java.io.FileOutputStream;
import java.io.FileDescriptor;
import java.io.FileReader;
import java.io.PrintStream;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Executors;

/**
 * The Debezium engine with JSON out, as it is embedded. Given its settings and a number, it counts changes, and says how
 * long the first so many took. With "tell" it writes each message as a line instead: key, tab, value; none is empty.
 */
public class Engine {
    static long seen = 0, first = 0;

    public static void main(String[] given) throws Exception {
        Properties settings = new Properties();
        settings.load(new FileReader(given[0]));
        boolean tell = given[1].equals("tell");
        long wanted = tell ? Long.MAX_VALUE : Long.parseLong(given[1]);
        PrintStream out = new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false, "UTF-8");
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(settings)
            .notifying((List<ChangeEvent<String, String>> changes, DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> done) -> {
                long now = System.nanoTime();
                if (first == 0) first = now;
                for (ChangeEvent<String, String> change : changes) {
                    if (change.value() != null) seen++;
                    if (tell) out.println(text(change.key()) + "\t" + text(change.value()));
                    done.markProcessed(change);
                }
                out.flush();
                done.markBatchFinished();
                if (seen >= wanted) {
                    out.println("seconds " + (System.nanoTime() - first) / 1e9);
                    out.flush();
                    Runtime.getRuntime().halt(0);
                }
            })
            .using((success, message, error) -> {
                out.println("ended " + message + " " + error);
                out.flush();
                Runtime.getRuntime().halt(success ? 0 : 1);
            })
            .build();
        Executors.newSingleThreadExecutor().execute(engine);
    }

    static String text(String told) {
        return told == null ? "" : told;
    }
}
