package scale

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// service is a workload of the control plane with its replicas.
type service struct {
	// name is that of the workload, its account and its log; binary its program.
	name, binary string
	// args are those that the chart gives it, with the addresses of the site.
	args []string
	// each adds to the args of one replica; nil adds nothing.
	each func(replica int) []string
	// replicas, of which the first one leads if they elect a leader.
	replicas int
	elects   bool

	running []*process
	ready   []time.Duration // from the start of each replica
}

// raise starts the replicas, each when the one before is ready: the first one leads.
func (s *site) raise(ctx context.Context, v *service) error {
	kubeconfig, err := s.cluster.ServiceAccountKubeconfig(ctx, namespace, v.name, tokenLifetime)
	if err != nil {
		return err
	}
	for i := range v.replicas {
		args := append([]string{"--kubeconfig=" + kubeconfig, "--metrics-address=127.0.0.1:0"}, v.args...)
		if v.each != nil {
			args = append(args, v.each(i)...)
		}
		began := time.Now()
		p, err := s.launch(fmt.Sprintf("%s-%d", v.name, i), v.binary, args...)
		if err != nil {
			return err
		}
		v.running = append(v.running, p)
		since, err := s.awaitReady(ctx, p, v.elects && i == 0)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, tail(p.log, 5))
		}
		v.ready = append(v.ready, since.Sub(began))
	}
	return nil
}

// awaitReady returns since when a program is ready and, if it has to, leads. A program that has
// just been elected reports standby until it begins to fill its caches, so it must be ready for
// a while.
func (s *site) awaitReady(ctx context.Context, p *process, leads bool) (since time.Time, err error) {
	err = s.until(ctx, p.name+" to be ready", func(ctx context.Context) (bool, error) {
		ok, err := p.ready(ctx)
		if ok && leads {
			var leading float64
			leading, err = p.metric(ctx, "nvsentinel_leader_election_is_leader")
			ok = leading > 0
		}
		switch {
		case !ok || err != nil:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		return !since.IsZero() && time.Since(since) > s.o.Sizes.Steady, err
	})
	return since, err
}

// address is where the program serves probes and metrics, from the log of its present run; it is
// empty before the program logs it.
func (p *process) address() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	address := ""
	for line := range bytes.Lines(text) {
		var output struct{ Msg, Address string }
		if bytes.Contains(line, []byte("probe and metrics server started")) && json.Unmarshal(line, &output) == nil {
			address = output.Address
		}
	}
	return address
}

// ready asks the probe.
func (p *process) ready(ctx context.Context) (bool, error) {
	answer, err := p.get(ctx, "/readyz")
	if err != nil {
		return false, err
	}
	return answer.StatusCode == http.StatusOK, answer.Body.Close()
}

// get asks the program's own server.
func (p *process) get(ctx context.Context, path string) (*http.Response, error) {
	address := p.address()
	if address == "" {
		return nil, errors.New("it serves no probes yet")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(request)
}

// metric is the sum of a metric over its labels.
func (p *process) metric(ctx context.Context, name string) (float64, error) {
	answer, err := p.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	sum := 0.0
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("reading metric %s of %s: %w", name, p.name, err)
		}
		sum += n
	}
	return sum, nil
}
