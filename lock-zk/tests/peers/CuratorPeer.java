import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryNTimes;

/**
 * A program that locks by Curator. Arguments: the server's port, the path, and the kind of lock. It does what each line of its
 * input says, and answers by a line.
 */
public class CuratorPeer {
    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                "127.0.0.1:" + arguments[0], 60_000, 30_000, new RetryNTimes(10, 100));
        client.start();
        client.blockUntilConnected();
        String path = arguments[1];
        InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, path);
        InterProcessLock lock;
        switch (arguments[2]) {
            case "read":
                lock = both.readLock();
                break;
            case "write":
                lock = both.writeLock();
                break;
            default:
                lock = new InterProcessMutex(client, path);
        }
        say("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "lock":
                    lock.acquire();
                    say("held");
                    break;
                case "try":
                    say(lock.acquire(1, TimeUnit.MILLISECONDS) ? "held" : "refused");
                    break;
                case "unlock":
                    lock.release();
                    say("released");
                    break;
                case "downgrade":
                    both.readLock().acquire();
                    lock.release();
                    lock = both.readLock();
                    say("reads");
                    break;
                case "increment":
                    lock.acquire();
                    say("held");
                    Path counter = Path.of(words[1]);
                    int count = Integer.parseInt(Files.readString(counter));
                    Thread.sleep(5);
                    Files.writeString(counter, String.valueOf(count + 1));
                    lock.release();
                    say("done");
                    break;
                case "append":
                    lock.acquire();
                    Files.writeString(Path.of(words[1]), words[2] + "\n", StandardOpenOption.APPEND);
                    lock.release();
                    say("done");
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        client.close();
    }

    private static void say(String word) {
        System.out.println(word);
        System.out.flush();
    }
}
