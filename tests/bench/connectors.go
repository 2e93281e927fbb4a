package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/gobuild"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/tests/fleet"
	"github.com/nvidia/nvsentinel/tests/programs"
)

const (
	// ConnectorsProgram is the binary that runs the connectors of many nodes.
	ConnectorsProgram = "fleet"
	// connectorsService and gatewayService are what runs for cordon, storm and noisy.
	connectorsService, gatewayService = "connectors", "gateway"
	// connectorAccount is that of the nodes' connectors.
	connectorAccount = "system:serviceaccount:nvsentinel:" + fleet.Connector
)

// BuildConnectors builds the program that runs the connectors of many nodes into a folder
// and returns its path.
func BuildConnectors(ctx context.Context, root, dir string, b gobuild.Builder) (string, error) {
	return filepath.Join(dir, ConnectorsProgram), b.Build(ctx, programs.Connectors(root, dir))
}

// crowd is the connectors of many nodes, in one process, and the ways to them.
type crowd struct {
	stage  *stage
	figure string
	// gatewayFlags is the flags with which the connectors reach their gateway.
	gatewayFlags []string
	services     []*fleet.Service
	nodes        []string
	clients      []protos.PlatformConnectorClient
	closers      []func() error
}

// assemble starts the connectors of nodes that follow each other, and has each of them
// carry a first report, that its check is healthy, to the end: it knows its Node and the
// store then, and its condition is there. Without a way they have a gateway of their own.
func (s *stage) assemble(ctx context.Context, figure string, nodes []string, way ...string) (c *crowd, err error) {
	c = &crowd{stage: s, figure: figure, nodes: nodes, gatewayFlags: way}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	dir, err := os.MkdirTemp(s.fleet.Dir, "c")
	if err != nil {
		return nil, err
	}
	if err := c.start(ctx, dir); err != nil {
		return nil, err
	}
	for _, node := range nodes {
		conn, err := report.Dial(filepath.Join(dir, node+".sock"), "")
		if err != nil {
			return nil, err
		}
		c.closers = append(c.closers, conn.Close)
		c.clients = append(c.clients, protos.NewPlatformConnectorClient(conn))
	}
	return c, c.introduce(ctx)
}

// start starts the connectors, and their gateway unless a way was given, and waits until each
// accepts events.
func (c *crowd) start(ctx context.Context, dir string) (err error) {
	f := c.stage.fleet
	if len(c.gatewayFlags) == 0 {
		var service *fleet.Service
		service, c.gatewayFlags, err = c.stage.gateway(ctx, c.figure, len(c.nodes))
		if err != nil {
			return err
		}
		c.services = append(c.services, service)
	}
	program, err := filepath.Abs(c.stage.o.Connectors)
	if err != nil {
		return err
	}
	service := f.Launch(connectorsService+"@"+c.figure, program, slices.Concat([]string{
		"--nodes", strconv.Itoa(len(c.nodes)), "--first", strings.TrimPrefix(c.nodes[0], nodePrefix), "--prefix", nodePrefix,
		"--dir", dir, "--kubeconfig", f.Cluster.AdminKubeconfig(), "--identify",
	}, c.gatewayFlags), nil)
	c.services = append(c.services, service)
	ready := false
	err = until(ctx, c.stage.o.Sizes.Limit, fmt.Sprintf("%d connectors", len(c.nodes)), func() (bool, error) {
		text, err := os.ReadFile(service.Log)
		ready = strings.Contains("\n"+string(text), "\nready\n")
		return ready || service.Starts() > 1, err
	})
	if err != nil || !ready {
		return errors.Join(err, fmt.Errorf("the connectors do not start\n%s", service.Tail(8)))
	}
	return nil
}

// gateway starts a gateway on the store, with the API server's certificate, which is for
// this machine, and returns the flags with which the connectors of so many nodes reach it.
func (s *stage) gateway(ctx context.Context, figure string, nodes int, flags ...string) (*fleet.Service, []string, error) {
	f := s.fleet
	kubeconfig, err := f.Cluster.ServiceAccountKubeconfig(ctx, "nvsentinel", "platform-connectors-gateway", 24*time.Hour)
	if err != nil {
		return nil, nil, err
	}
	pki := filepath.Join(f.Cluster.Dir(), "pki")
	service := f.Launch(gatewayService+"@"+figure, "platform-connectors", append([]string{
		"--role", "gateway", "--kubeconfig", kubeconfig, "--store", f.DSN, "--metrics-address", "127.0.0.1:0",
		"--gateway-listen", "127.0.0.1:0", "--inspect-address", "", "--gateway-cert-file", filepath.Join(pki, "apiserver.crt"), "--gateway-key-file", filepath.Join(pki, "apiserver.key"),
		"--gateway-accounts", connectorAccount, "--gateway-connections-per-address", strconv.Itoa(2 * nodes),
	}, flags...), nil)
	address := ""
	err = until(ctx, s.o.Sizes.Limit, "the gateway", func() (bool, error) {
		address = loggedAddress(service.Log, "gateway listening for connectors")
		return address != "" || service.Starts() > startsAtMost, nil
	})
	if err != nil || address == "" {
		return nil, nil, errors.Join(err, fmt.Errorf("the gateway does not start\n%s", service.Tail(8)))
	}
	return service, []string{"--gateway", address, "--gateway-ca-file", filepath.Join(pki, "ca.crt")}, nil
}

// introduce has every connector report that its check is healthy, and waits until the
// Nodes show it, all is evaluated, the connectors may write conditions again, and their pods
// run.
func (c *crowd) introduce(ctx context.Context) error {
	s := c.stage
	if err := c.send(ctx, func(node string) *protos.HealthEvent { return s.pen.recovery(node, 0) }); err != nil {
		return err
	}
	well, err := s.diary.await(ctx, s.o.Sizes.Limit, keys("well", c.nodes)...)
	if err != nil {
		return err
	}
	if err := s.waitEvaluated(ctx, len(c.nodes)); err != nil {
		return err
	}
	if err := pause(ctx, time.Until(well.Add(conditionsCalm))); err != nil {
		return err
	}
	pods := s.fleet.Cluster.Client().CoreV1().Pods("nvsentinel")
	return until(ctx, s.o.Sizes.Limit, "the connectors' pods to run", func() (bool, error) {
		list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "status.phase!=Running", Limit: 1})
		return err == nil && len(list.Items) == 0, err
	})
}

// send sends an event of every node through its connector, all at once.
func (c *crowd) send(ctx context.Context, event func(node string) *protos.HealthEvent) error {
	return atOnce(len(c.nodes), len(c.nodes), func(i int) error { return c.sendOne(ctx, i, event(c.nodes[i])) })
}

// sendOne sends an event through the connector of one node.
func (c *crowd) sendOne(ctx context.Context, i int, e *protos.HealthEvent) error {
	_, err := c.clients[i].HealthEventOccurredV1(ctx, &protos.HealthEvents{Version: 1, Events: []*protos.HealthEvent{e}}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("reporting an event of %s: %w", c.nodes[i], err)
	}
	return nil
}

// stop ends the connectors, and their gateway.
func (c *crowd) stop() error {
	var problems []error
	for _, close := range c.closers {
		problems = append(problems, close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	for _, service := range slices.Backward(c.services) {
		service.Stop(ctx)
	}
	return errors.Join(problems...)
}

// conditionsCalm is longer than a connector waits after it wrote its Node's conditions.
const conditionsCalm = 1500 * time.Millisecond

// stopTime is how long connectors have to end by themselves.
const stopTime = 30 * time.Second

// waitEvaluated waits until at least so many records are stored and all have a verdict.
func (s *stage) waitEvaluated(ctx context.Context, n int) (err error) {
	conn, err := pgx.Connect(ctx, s.fleet.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	return until(ctx, s.o.Sizes.Limit, "all records to be judged", func() (bool, error) {
		var stored, waiting int
		err := conn.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE verdict = '') FROM health_events").Scan(&stored, &waiting)
		return stored >= n && waiting == 0, err
	})
}
