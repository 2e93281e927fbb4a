package bmc

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

// Check asks all BMCs from time to time whether they answer and take the
// credentials. The process is ready as soon as one does: a BMC that is away
// keeps nobody from the others.
type Check struct {
	provider *Provider
	log      *slog.Logger
	clock    clock.WithTicker
	every    time.Duration
	atOnce   int
	up       *prometheus.GaugeVec

	mu sync.Mutex
	// problems are of the machines that were asked; empty is none.
	problems map[string]string
}

// NewCheck makes a check; its metrics are registered.
func NewCheck(p *Provider, c Config, log *slog.Logger, clk clock.WithTicker, registry prometheus.Registerer) *Check {
	k := &Check{
		provider: p, log: log, clock: clk, every: c.CheckEvery, atOnce: c.ChecksAtOnce, problems: map[string]string{},
		up: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nvsentinel_csp_plugin_bmc_up", Help: "1 if the BMC of the machine responded to its last check and accepted the credentials, otherwise 0.",
		}, []string{"machine"}),
	}
	registry.MustRegister(k.up)
	return k
}

// Run checks until its context ends.
func (k *Check) Run(ctx context.Context) error {
	tick := k.clock.NewTicker(k.every)
	defer tick.Stop()
	for {
		k.Sweep(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

// Sweep asks each BMC once.
func (k *Check) Sweep(ctx context.Context) {
	machines := make(chan string)
	var workers sync.WaitGroup
	for range k.atOnce {
		workers.Go(func() {
			for machine := range machines {
				_, err := k.provider.inspect(ctx, machine)
				if ctx.Err() == nil {
					k.note(machine, err)
				}
			}
		})
	}
	for _, machine := range k.provider.Machines() {
		if ctx.Err() != nil {
			break
		}
		machines <- machine
	}
	close(machines)
	workers.Wait()
}

// note keeps the outcome of one check, and logs it when it is another one than
// before.
func (k *Check) note(machine string, err error) {
	problem, up := "", 1.0
	if err != nil {
		problem, up = err.Error(), 0
	}
	k.up.WithLabelValues(machine).Set(up)
	k.mu.Lock()
	before, asked := k.problems[machine]
	k.problems[machine] = problem
	k.mu.Unlock()
	switch {
	case err != nil && (before == "" || !asked):
		k.log.Warn("BMC check failed: no response or credentials rejected", "machine", machine, "error", err)
	case err == nil && asked && before != "":
		k.log.Info("BMC check recovered", "machine", machine)
	}
}

// named is how many machines readiness names.
const named = 3

// Ready reports whether some BMC is up, and describes those that are down.
func (k *Check) Ready() (bool, string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all, down := k.provider.Machines(), []string{}
	for _, machine := range all {
		if problem := k.problems[machine]; problem != "" {
			down = append(down, machine+": "+problem)
		}
	}
	detail := ""
	if len(down) > 0 {
		detail = fmt.Sprintf("%d of %d BMCs are down: %s", len(down), len(all), strings.Join(down[:min(named, len(down))], "; "))
	}
	if len(k.problems) == len(down) {
		if len(down) < len(all) {
			detail = strings.TrimPrefix(detail+"; no BMC has responded yet", "; ")
		}
		return false, detail
	}
	return true, detail
}

// Serve makes the service of a plugin of BMCs: what a main has left to do is to
// make the driver.
func Serve(d *daemon.Daemon, name string, c Config, entries []Entry, driver Driver) error {
	provider := New(entries, driver)
	check := NewCheck(provider, c, d.Log, d.Clock, d.Registry)
	d.Ready("BMCs", check.Ready)
	d.Go("check of the BMCs", check.Run)
	return cloud.ServeHardware(d, name, c.Config, provider)
}
