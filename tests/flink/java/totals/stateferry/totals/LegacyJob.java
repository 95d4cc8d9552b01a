package stateferry.totals;

/** The job before its state was migrated. */
public final class LegacyJob {
    private LegacyJob() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        Topology.run("totals", options, new LegacyTotals(options));
    }
}
