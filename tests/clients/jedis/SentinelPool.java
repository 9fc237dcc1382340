import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.function.Function;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisSentinelPool;
import redis.clients.jedis.exceptions.JedisException;

/**
 * What a Java program does with Jedis' Sentinel pool while the primary fails. Usage: SentinelPool
 * NAME SENTINEL_PORT...
 *
 * <p>Says "going" when it has written for a while, "again" when it writes once more behind a
 * failure, and "ok" when it has read what it wrote.
 */
public final class SentinelPool {
    private static final int WRITES = 100;
    private static final long LIMIT_NS = 60_000_000_000L;
    private static final long END_NS = System.nanoTime() + LIMIT_NS;
    private static boolean failed;

    public static void main(String[] arguments) throws Exception {
        Set<String> sentinels = new HashSet<>();
        for (String port : Arrays.copyOfRange(arguments, 1, arguments.length)) {
            sentinels.add("127.0.0.1:" + port);
        }
        try (JedisSentinelPool pool = new JedisSentinelPool(arguments[0], sentinels)) {
            long count = 0;
            long wanted = Long.MAX_VALUE;
            boolean isBack = false;
            while (count < wanted) {
                String value = Long.toString(count + 1);
                same("OK", keepTrying(pool, jedis -> jedis.set("jedis", value)));
                count++;
                if (count == WRITES) {
                    say("going");
                }
                if (failed && !isBack) {
                    isBack = true;
                    wanted = count + WRITES;
                    say("again");
                }
            }
            same(Long.toString(count), keepTrying(pool, jedis -> jedis.get("jedis")));
        }
        say("ok");
    }

    private static String keepTrying(JedisSentinelPool pool, Function<Jedis, String> action)
            throws InterruptedException {
        while (System.nanoTime() < END_NS) {
            try (Jedis jedis = pool.getResource()) {
                return action.apply(jedis);
            } catch (JedisException failure) {
                failed = true;
                Thread.sleep(10);
            }
        }
        throw new AssertionError("it does not come back, or no failure came");
    }

    private static void same(String expected, String found) {
        if (!expected.equals(found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    private static void say(String word) {
        System.out.println(word);
        System.out.flush();
    }
}
