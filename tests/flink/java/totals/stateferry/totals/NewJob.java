package stateferry.totals;

/** The job after its state was migrated. */
public final class NewJob {
    private NewJob() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        Topology.run("totals", options, new NewTotals(options));
    }
}
