import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import org.apache.parquet.column.values.bloomfilter.BlockSplitBloomFilter;

/** parquet-java's split-block filter under the protocol of scripts/benchmarks/peers/pipe.py; see kernels_peer.rs. */
public class KernelsPeer {
    static long[] values(long first, int count) {
        long[] out = new long[count];
        for (int i = 0; i < count; i++) {
            out[i] = (first + i) * 0x9E3779B97F4A7C15L;
        }
        return out;
    }

    static BlockSplitBloomFilter insert(long[] values, int bytes) {
        BlockSplitBloomFilter filter = new BlockSplitBloomFilter(bytes, bytes);
        for (long value : values) {
            filter.insertHash(filter.hash(value));
        }
        return filter;
    }

    static int check(BlockSplitBloomFilter filter, long[] values) {
        int found = 0;
        for (long value : values) {
            if (filter.findHash(filter.hash(value))) {
                found++;
            }
        }
        return found;
    }

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]);
        int bytes = Integer.parseInt(arguments[1]);
        long[] stored = values(0, count);
        long[] asked = values(count / 2, count);
        BlockSplitBloomFilter filter = null;
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        System.out.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            long before = threads.getCurrentThreadCpuTime();
            long start = System.nanoTime();
            int found = 0;
            if (line.equals("insert")) {
                filter = insert(stored, bytes);
            } else {
                found = check(filter, asked);
            }
            long wall = System.nanoTime() - start;
            long cpu = threads.getCurrentThreadCpuTime() - before;
            System.out.println(wall / 1e9 + " " + cpu / 1e9 + " " + found);
        }
    }
}
