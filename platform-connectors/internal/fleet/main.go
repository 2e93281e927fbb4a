// Command fleet runs the connectors of many nodes in one process, for benchmarks and
// tests of scale: each is what node-connector runs on a node, with
// a socket, a spool and an account of its own. It is never shipped.
//
// It prints "ready" on its standard output when every socket accepts events, and ends
// well on SIGTERM. A connector that ends by itself ends all of them.
//
// Exit status: 0 stopped by a signal, 1 a connector or a start failed, 2 bad flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nvidia/nvsentinel/platform-connectors/internal/nodeconnector"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
)

// settings are the command line.
type settings struct {
	nodes, first int
	prefix, dir  string
	kubeconfig   string
	identify     bool
	namespace    string
	account      string
	gateway      upstream.Config
	atOnce       int
	logLevel     string
	// connectorArgs are flags of node-connector, which every connector gets.
	connectorArgs []string
}

// nodeMark stands for the name of a node in paths.
const nodeMark = "{node}"

func main() { os.Exit(run()) }

func run() int {
	s, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		return 2
	}
	ctx, release := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, release) // a second signal kills
	if err := openFiles(); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
	}
	if err := serve(ctx, s, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		return 1
	}
	return 0
}

// parse reads the command line. What follows -- is for each connector.
func parse(args []string, out io.Writer) (settings, error) {
	s := settings{gateway: upstream.Default()}
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.IntVar(&s.nodes, "nodes", 1, "Number of connectors to run.")
	flags.IntVar(&s.first, "first", 0, "Number of the first node.")
	flags.StringVar(&s.prefix, "prefix", "gpu-", "Prefix of the node names, followed by their number.")
	flags.StringVar(&s.dir, "dir", "", "Absolute directory. The socket of a node is DIR/NODE.sock, its write-ahead log and files are in DIR/NODE. Keep it short, because a socket path is limited to 108 bytes.")
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "Path of a kubeconfig. "+nodeMark+" is replaced by the name of the node. Required unless -- --kubernetes=false.")
	flags.BoolVar(&s.identify, "identify", false, "Use the kubeconfig of an administrator: create a Pod of --account for each node, and let its connector authenticate to the API server and the gateways with tokens bound to that Pod.")
	flags.StringVar(&s.namespace, "namespace", "nvsentinel", "Namespace of the account and the Pods, with --identify.")
	flags.StringVar(&s.account, "account", "platform-connectors", "Service account of the connectors, with --identify.")
	flags.StringVar(&s.gateway.Address, "gateway", "", "Addresses of the gateways, as host:port, separated by commas. Each connector opens its own connection. Required.")
	flags.StringVar(&s.gateway.CAFile, "gateway-ca-file", s.gateway.CAFile, "PEM file with the CA certificates that verify the gateways.")
	flags.StringVar(&s.gateway.ServerName, "gateway-server-name", "", "Server name in the certificates of the gateways. Empty uses the host of the first address.")
	flags.StringVar(&s.gateway.TokenFile, "gateway-token-file", s.gateway.TokenFile, "File with the token for the gateways. "+nodeMark+" is replaced by the name of the node. Not used with --identify.")
	flags.IntVar(&s.atOnce, "at-once", 32, "Maximum number of connectors that start concurrently.")
	flags.StringVar(&s.logLevel, "log-level", "warn", "Log level of the connectors, which log to standard error.")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	s.connectorArgs = flags.Args()
	return s, s.check()
}

// check names what is wrong with the command line.
func (s settings) check() error {
	var problems []error
	if s.nodes < 1 || s.first < 0 || s.atOnce < 1 {
		problems = append(problems, errors.New("--nodes and --at-once must be at least 1, --first at least 0"))
	}
	if !filepath.IsAbs(s.dir) {
		problems = append(problems, fmt.Errorf("--dir %q is not an absolute path", s.dir))
	}
	if longest := s.socket(s.name(s.nodes - 1)); len(longest) > 107 {
		problems = append(problems, fmt.Errorf("--dir is too long: the path of the socket %s has more than 107 bytes", longest))
	}
	if s.gateway.Address == "" {
		problems = append(problems, errors.New("--gateway is required"))
	}
	if s.identify && (s.kubeconfig == "" || strings.Contains(s.kubeconfig, nodeMark)) {
		problems = append(problems, errors.New("--identify requires --kubeconfig, one for all nodes"))
	}
	return errors.Join(problems...)
}

// name is that of the node with this place among ours.
func (s settings) name(i int) string { return s.prefix + strconv.Itoa(s.first+i) }

func (s settings) socket(node string) string { return filepath.Join(s.dir, node+".sock") }

func (s settings) folder(node string) string { return filepath.Join(s.dir, node) }

// config is a node's connector's.
func (s settings) config(node string) nodeconnector.Config {
	cfg := nodeconnector.Default()
	cfg.NodeName, cfg.Socket, cfg.SpoolDir = node, s.socket(node), filepath.Join(s.folder(node), "spool")
	cfg.Gateway = s.upstreamConfig(node)
	cfg.Kube.Kubeconfig = strings.ReplaceAll(s.kubeconfig, nodeMark, node)
	if s.identify {
		cfg.Kube.Kubeconfig = filepath.Join(s.folder(node), "kubeconfig")
	}
	return cfg
}

// upstreamConfig is how a node's connector reaches the gateways.
func (s settings) upstreamConfig(node string) upstream.Config {
	cfg := s.gateway
	cfg.TokenFile = strings.ReplaceAll(cfg.TokenFile, nodeMark, node)
	if s.identify {
		cfg.TokenFile = filepath.Join(s.folder(node), "gateway.token")
	}
	return cfg
}

// openFiles raises the number of files this process may have open, where it may: a
// connector has some six.
func openFiles() error {
	limit := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		return nil
	}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("reading the limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raising the limit of open files: %w", err)
	}
	return nil
}
