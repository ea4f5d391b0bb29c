import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hive.ql.exec.vector.VectorizedRowBatch;
import org.apache.orc.CompressionKind;
import org.apache.orc.OrcFile;
import org.apache.orc.Reader;
import org.apache.orc.RecordReader;
import org.apache.orc.TypeDescription;
import org.apache.orc.Writer;

/**
 * ORC's own library under the protocol of scripts/benchmarks/peers/pipe.py. Arguments: a file, a target, names of
 * columns. "rewrite" writes all rows again with Bloom filters on these columns, "scan" decodes these columns.
 */
public class OrcPeer {
    static final Configuration SETTINGS = new Configuration();

    static long rewrite(String source, String target, String columns) throws Exception {
        Files.deleteIfExists(Path.of(target));
        Reader reader = OrcFile.createReader(path(source), OrcFile.readerOptions(SETTINGS));
        TypeDescription schema = reader.getSchema();
        VectorizedRowBatch batch = schema.createRowBatch();
        OrcFile.WriterOptions options = OrcFile.writerOptions(SETTINGS).setSchema(schema)
                .compress(CompressionKind.ZSTD).bloomFilterColumns(columns).bloomFilterFpp(0.01).overwrite(true);
        long rows = 0;
        try (Writer writer = OrcFile.createWriter(path(target), options); RecordReader all = reader.rows()) {
            while (all.nextBatch(batch)) {
                writer.addRowBatch(batch);
                rows += batch.size;
            }
        }
        return rows;
    }

    static long scan(String source, String columns) throws Exception {
        Reader reader = OrcFile.createReader(path(source), OrcFile.readerOptions(SETTINGS));
        TypeDescription schema = reader.getSchema();
        boolean[] include = new boolean[schema.getMaximumId() + 1];
        include[0] = true;
        for (String column : columns.split(",")) {
            include[schema.findSubtype(column).getId()] = true;
        }
        VectorizedRowBatch batch = schema.createRowBatch();
        long rows = 0;
        try (RecordReader some = reader.rows(reader.options().include(include))) {
            while (some.nextBatch(batch)) {
                rows += batch.size;
            }
        }
        return rows;
    }

    static org.apache.hadoop.fs.Path path(String name) {
        return new org.apache.hadoop.fs.Path(new File(name).toURI());
    }

    public static void main(String[] arguments) throws Exception {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        System.out.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            long before = system.getProcessCpuTime();
            long start = System.nanoTime();
            long rows = line.equals("rewrite") ? rewrite(arguments[0], arguments[1], arguments[2])
                    : scan(arguments[0], arguments[2]);
            long wall = System.nanoTime() - start;
            long cpu = system.getProcessCpuTime() - before;
            System.out.println(wall / 1e9 + " " + cpu / 1e9 + " " + rows);
        }
    }
}
