import java.util.List;
import org.apache.bookkeeper.net.AbstractDNSToSwitchMapping;

/** Racks of bookies on addresses of loopback: 127.0.R.N is in rack /rR. */
public final class LoopbackRacks extends AbstractDNSToSwitchMapping {
    @Override
    public List<String> resolve(List<String> names) {
        return names.stream().map(name -> "/r" + name.split("\\.")[2]).toList();
    }

    @Override
    public boolean useHostName() {
        return false;
    }

    @Override
    public void reloadCachedMappings() { }
}
