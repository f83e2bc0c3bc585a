import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Executors;

/** The Debezium engine with JSON out, as it is embedded: counts changes, and says when the first and the last came. */
public class Engine {
    static long seen = 0, first = 0;

    public static void main(String[] given) throws Exception {
        Properties settings = new Properties();
        settings.load(new FileReader(given[0]));
        long wanted = Long.parseLong(given[1]);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(settings)
            .notifying((List<ChangeEvent<String, String>> changes, DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> done) -> {
                long now = System.nanoTime();
                if (first == 0) first = now;
                for (ChangeEvent<String, String> change : changes) {
                    if (change.value() != null) seen++;
                    done.markProcessed(change);
                }
                done.markBatchFinished();
                if (seen >= wanted) {
                    System.out.println("seconds " + (System.nanoTime() - first) / 1e9);
                    System.out.flush();
                    Runtime.getRuntime().halt(0);
                }
            })
            .using((success, message, error) -> {
                System.out.println("ended " + message + " " + error);
                Runtime.getRuntime().halt(success ? 0 : 1);
            })
            .build();
        Executors.newSingleThreadExecutor().execute(engine);
    }
}
