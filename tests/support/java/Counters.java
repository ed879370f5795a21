import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import org.apache.bookkeeper.stats.Counter;
import org.apache.bookkeeper.stats.Gauge;
import org.apache.bookkeeper.stats.OpStatsData;
import org.apache.bookkeeper.stats.OpStatsLogger;
import org.apache.bookkeeper.stats.StatsLogger;
import org.apache.bookkeeper.stats.StatsProvider;
import org.apache.commons.configuration2.Configuration;

/** A bookie's own metrics, kept as how often each operation was counted, by its full name. */
public final class Counters implements StatsProvider {
    private final Map<String, LongAdder> counts = new ConcurrentHashMap<>();

    /** Returns what was counted so far. */
    public Map<String, Long> counted() {
        Map<String, Long> found = new TreeMap<>();
        counts.forEach((name, count) -> found.put(name, count.sum()));
        return found;
    }

    @Override
    public void start(Configuration conf) { }

    @Override
    public void stop() { }

    @Override
    public StatsLogger getStatsLogger(String scope) {
        return new Scope(scope);
    }

    private LongAdder of(String name) {
        return counts.computeIfAbsent(name, any -> new LongAdder());
    }

    private final class Scope implements StatsLogger {
        private final String scope;

        Scope(String scope) {
            this.scope = scope;
        }

        @Override
        public OpStatsLogger getOpStatsLogger(String name) {
            return new Operation(of(scope + "." + name));
        }

        @Override
        public OpStatsLogger getThreadScopedOpStatsLogger(String name) {
            return getOpStatsLogger(name);
        }

        @Override
        public Counter getCounter(String name) {
            return new Count(of(scope + "." + name));
        }

        @Override
        public Counter getThreadScopedCounter(String name) {
            return getCounter(name);
        }

        @Override
        public <T extends Number> void registerGauge(String name, Gauge<T> gauge) { }

        @Override
        public <T extends Number> void unregisterGauge(String name, Gauge<T> gauge) { }

        @Override
        public StatsLogger scope(String name) {
            return new Scope(scope.isEmpty() ? name : scope + "." + name);
        }

        @Override
        public void removeScope(String name, StatsLogger logger) { }
    }

    private record Operation(LongAdder count) implements OpStatsLogger {
        @Override
        public void registerFailedEvent(long latency, TimeUnit unit) {
            count.increment();
        }

        @Override
        public void registerSuccessfulEvent(long latency, TimeUnit unit) {
            count.increment();
        }

        @Override
        public void registerSuccessfulValue(long value) {
            count.increment();
        }

        @Override
        public void registerFailedValue(long value) {
            count.increment();
        }

        @Override
        public OpStatsData toOpStatsData() {
            return null;
        }

        @Override
        public void clear() { }
    }

    private record Count(LongAdder count) implements Counter {
        @Override
        public void clear() { }

        @Override
        public void inc() {
            count.increment();
        }

        @Override
        public void dec() {
            count.decrement();
        }

        @Override
        public void addCount(long delta) {
            count.add(delta);
        }

        @Override
        public void addLatency(long latency, TimeUnit unit) {
            count.increment();
        }

        @Override
        public Long get() {
            return count.sum();
        }
    }
}
