package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/tests/fleet"
)

// The targets of the services.
const (
	connectorTarget = 40e6
	monitorTarget   = 30e6
	controlTarget   = 100e6
	idleTarget      = 30
)

// memoryTarget is a service's target in bytes.
func memoryTarget(service string) Target {
	bytes := controlTarget
	switch service {
	case fleet.Connector + "@gpu-0":
		bytes = connectorTarget
	case fleet.Monitor + "@gpu-0":
		bytes = monitorTarget
	}
	return Target{Under: Quantity{bytes, Bytes, true}}
}

// measured are the services whose memory counts: all but the connectors that
// Cordon alone needs.
func (s *stage) measured() []*fleet.Service {
	var out []*fleet.Service
	for _, service := range s.fleet.Services() {
		for _, name := range fleet.Services() {
			if service.Name == name || service.Name == name+"@gpu-0" {
				out = append(out, service)
			}
		}
	}
	return out
}

// measureMemory looks at the idle suite: the agents' processor time, then the
// resident memory of every service.
func (s *stage) measureMemory(ctx context.Context) ([]Row, error) {
	var agents []int
	for _, service := range []string{fleet.Connector, fleet.Monitor} {
		service := s.fleet.Service(service + "@gpu-0")
		err := until(ctx, s.o.Sizes.Limit, service.Name+" to run", func() (bool, error) { return service.PID() != 0, nil })
		if err != nil {
			return nil, err
		}
		agents = append(agents, service.PID())
	}
	// The first half is for the start-up to pass.
	var before, after time.Duration
	for _, spent := range []*time.Duration{&before, &after} {
		if err := pause(ctx, s.o.Sizes.Idle); err != nil {
			return nil, err
		}
		for _, pid := range agents {
			used, err := cpu(pid)
			if err != nil {
				return nil, err
			}
			*spent += used
		}
	}
	used := Quantity{1000 * (after - before).Seconds() / s.o.Sizes.Idle.Seconds(), Millicores, true}
	rows := []Row{{
		Figure: "idle CPU of a node's agents together", Measured: used, Target: Target{Under: Quantity{idleTarget, Millicores, true}},
		Note: fmt.Sprintf("connector and syslog monitor, over %s", s.o.Sizes.Idle),
	}}
	for _, service := range s.measured() {
		rss, err := memory(service.PID(), "VmRSS")
		if err != nil {
			return rows, err
		}
		own, err := memory(service.PID(), "RssAnon")
		if err != nil {
			return rows, err
		}
		rows = append(rows, Row{
			Figure: "memory of " + service.Name, Measured: bytesOf(rss), Target: memoryTarget(service.Name),
			Note: fmt.Sprintf("resident, idle, %d nodes, %d pods; heap and stacks %.1f MB, the rest is the program's file",
				len(s.nodes), s.o.Sizes.Pods, float64(own)/1e6),
		})
	}
	return rows, nil
}

// peaks are what the services needed at most by the end of all figures.
func (s *stage) peaks() []Row {
	var rows []Row
	if !s.o.wants(Memory) || len(s.o.Only) == 1 {
		return nil
	}
	for _, service := range s.measured() {
		if hwm, err := memory(service.PID(), "VmHWM"); err == nil {
			rows = append(rows, Row{Figure: "  at most, " + service.Name, Measured: bytesOf(hwm), Note: "peak over the figures above"})
		}
	}
	return rows
}

// pause lets time pass.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
