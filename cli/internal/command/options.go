package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nvidia/nvsentinel/cli/internal/forward"
	"github.com/nvidia/nvsentinel/cli/internal/snapshot"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/store-client/remote"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// options are the flags of all commands.
type options struct {
	program    Program
	store      string
	kubeconfig string
	context    string
	namespace  string
	output     string
	timezone   string
	within     time.Duration
	limit      int
	all        bool
	following  bool

	zone *time.Location
}

func (o *options) flags(f *pflag.FlagSet) {
	// The address is no default of the flag: help would print its password.
	f.StringVar(&o.store, "store", "", "Address of the store: sqlite:///absolute/path.db, postgres://user@host/database or mongodb://host,host/database. Defaults to $NVSENTINEL_STORE. Without both, the CLI reads the store through a forwarded port of a gateway Pod in the namespace.")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "Path of a kubeconfig. The default is that of kubectl.")
	f.StringVar(&o.context, "context", "", "Context of the kubeconfig. Defaults to the current context.")
	f.StringVarP(&o.namespace, "namespace", "n", pause.DefaultNamespace, "Namespace of the installation, which contains its gateways and its emergency stop.")
	f.StringVarP(&o.output, "output", "o", "text", "Output format: text or json.")
	f.StringVar(&o.timezone, "timezone", "UTC", "Time zone of text output: UTC, Local, or a name such as Europe/Berlin.")
	f.DurationVar(&o.within, "timeout", defaultWithin, "Timeout for reading each source.")
	f.IntVar(&o.limit, "limit", 1000, "Maximum number of newest records read per node, and maximum consumer lag that is counted.")
}

// check refuses values that no flag parser can.
func (o *options) check() error {
	var problems []error
	if o.output != "text" && o.output != "json" {
		problems = append(problems, fmt.Errorf("--output %q is not text or json", o.output))
	}
	zone, err := time.LoadLocation(o.timezone)
	if err != nil {
		problems = append(problems, fmt.Errorf("--timezone: %w", err))
	}
	o.zone = zone
	if o.within <= 0 {
		problems = append(problems, fmt.Errorf("--timeout %s is not positive", o.within))
	}
	if o.limit < 1 {
		problems = append(problems, fmt.Errorf("--limit is %d: must be at least 1", o.limit))
	}
	if err := errors.Join(problems...); err != nil {
		return coded{err, ExitUsage}
	}
	return nil
}

// kube is the kubeconfig that is asked for.
func (o *options) kube() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context}).ClientConfig()
}

// agent is how the program names itself to the API server.
func (o *options) agent() string { return "nvsentinel-cli/" + o.program.Version }

// open opens what can be opened; done closes it.
func (o *options) open(ctx context.Context) (s snapshot.Sources, done func()) {
	s = snapshot.Sources{Namespace: o.namespace, Within: o.within, Limit: o.limit}
	rc, err := o.kube()
	if err == nil {
		s.Cluster, err = snapshot.Connect(rc, o.agent())
	}
	s.ClusterError = err
	closing := func() {}
	switch address := cmp.Or(o.store, o.program.Store); {
	case address != "":
		bounded, cancel := context.WithTimeout(ctx, o.within)
		defer cancel()
		s.Records, s.RecordsError = storeopen.OpenReader(bounded, address, storeopen.Options{})
	case err != nil:
		s.RecordsError = fmt.Errorf("opening the store: no address is set (--store, NVSENTINEL_STORE), and a gateway cannot be reached without the API server: %w", err)
	default:
		s.Records, closing = o.gateways(rc, s.Cluster)
	}
	return s, func() {
		if s.Records != nil {
			// Nothing was written: an error of closing has lost nothing.
			_ = s.Records.Close()
		}
		closing()
	}
}

// gateways reads the store through those of the namespace; the way there is taken by
// the first read.
func (o *options) gateways(rc *rest.Config, cluster *kube.Client) (store.Reader, func()) {
	rc = rest.CopyConfig(rc)
	rc.UserAgent = o.agent()
	core := cluster.Clientset.CoreV1()
	g := &forward.Gateways{
		Pods: core, Namespace: o.namespace,
		Tunnels: forward.APIServer{Config: rc, REST: core.RESTClient(), Namespace: o.namespace},
	}
	return remote.Open(g.Dial), g.Close
}

// needs is the error of what cannot do without both sources.
func (o *options) needs(ctx context.Context, what string, s snapshot.Sources) error {
	err := errors.Join(s.RecordsError, s.ClusterError)
	if err == nil {
		bounded, cancel := context.WithTimeout(ctx, o.within)
		defer cancel()
		err = s.Records.Ping(bounded)
	}
	if err != nil {
		return coded{fmt.Errorf("%s requires the store and the API server: %w", what, err), ExitFailed}
	}
	return nil
}
