// Package connector is a node monitor's side of the node's platform connector: the outbox
// in which events wait for it and from which they are published, and the file by which it
// reports the records that people cleared (record.ClearedList).
package connector

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/report"
)

// Config is what the monitors of a node have in common.
type Config struct {
	_ struct{} `block:"Node monitor" usage:"Node identity of a monitor, and the local outbox of its events"`

	// NodeName is the Kubernetes name of the node.
	NodeName string `toml:"nodeName" bounds:"not empty" flag:"node-name" usage:"Name of the node that runs this monitor."`
	// BootIDPath holds the id of the running boot. A file that stands in for the
	// kernel's must be replaced by renaming, never written in place.
	BootIDPath string `toml:"bootIDPath" bounds:"not empty" flag:"boot-id-path" usage:"File with the ID of the current boot."`
	// StateDir holds the outbox; it must survive a reboot.
	StateDir string `toml:"stateDir" bounds:"not empty" flag:"state-dir" usage:"Directory of the outbox. It must survive a reboot."`
	// OutboxMiB bounds the events that wait for the connector, in MiB.
	OutboxMiB int `toml:"outboxMiB" bounds:"at least 1 MiB" flag:"outbox-mib" usage:"Maximum size of the outbox in MiB. When it is full, new events are not reported until queued events are sent."`
	report.Connector
	report.Acting
}

// Default is the configuration of an agent whose outbox has so many MiB; the name of the
// node is missing.
func Default(agent string, mib int) Config {
	return Config{
		BootIDPath: "/proc/sys/kernel/random/boot_id", StateDir: "/var/lib/nvsentinel/" + agent, OutboxMiB: mib,
		Connector: report.DefaultConnector(), Acting: report.Acting{Strategy: record.Process},
	}
}

// Clearances follow the file of the node's connector.
func (c Config) Clearances() *Clearances { return FollowClearances(record.ClearedPath(c.Socket)) }

// Outbox opens the outbox and begins to publish what is in it: what can fail without it
// comes first. The names of its metrics begin with prefix; replaced is logged when the
// outbox was unreadable, and names what becomes of its content.
func (c Config) Outbox(d *daemon.Daemon, agent, prefix, replaced string) (*report.Outbox, error) {
	outbox, err := report.Open(filepath.Join(c.StateDir, "outbox.db"), report.Options{Clock: d.Clock, MaxBytes: int64(c.OutboxMiB) << 20})
	if err != nil {
		return nil, err
	}
	d.OnStop("outbox", func(context.Context) error { return outbox.Close() })
	if outbox.Origin() == report.Replaced {
		d.Log.Error(replaced, "stateDir", c.StateDir, "kept", "outbox.db.damaged")
	}
	conn, err := report.Dial(c.Socket, c.TokenPath)
	if err != nil {
		return nil, err
	}
	d.OnStop("connector", func(context.Context) error { return conn.Close() })
	publisher := &report.Publisher{
		Name: agent, Outbox: outbox, Connector: protos.NewPlatformConnectorClient(conn), Clock: d.Clock,
		Log: d.Log, Metrics: report.NewMetrics(d.Registry, prefix, outbox, d.Clock),
	}
	d.Ready("connector", publisher.Ready)
	d.Go("publisher", publisher.Run)
	return outbox, nil
}

// fileBytes bounds the file: as many records of 36 characters as it has, and
// more.
const fileBytes = 256 << 10

// Clearances follows one such file.
type Clearances struct {
	path         string
	latest, done version
	lastError    string // the last error
}

// version identifies the content of a file without reading it.
type version struct {
	size    int64
	changed time.Time
}

// ClearedIDs are those of the records that people cleared.
type ClearedIDs map[string]bool

// Any reports whether the fault that the events of these ids report was cleared: itself, or
// the record by which its connector had it acted upon once it was confirmed.
func (c ClearedIDs) Any(reported []string) bool {
	return slices.ContainsFunc(reported, func(id string) bool {
		confirmation, err := record.ConfirmationID(id)
		return c[id] || err == nil && c[confirmation]
	})
}

// FollowClearances prepares to read the file; with an empty path nothing is read.
func FollowClearances(path string) *Clearances { return &Clearances{path: path} }

// Take hands the ids of the records that were cleared to forget, if the file has
// changed since that took them; what it fails with is returned, and it gets them
// again. A file that others than its owner may write, or that cannot be understood,
// is not believed; the same problem in a row is logged once.
func (f *Clearances) Take(log *slog.Logger, forget func(ClearedIDs) error) error {
	ids, err := f.read()
	if text := fmt.Sprint(err); text != f.lastError {
		if f.lastError = text; err != nil {
			log.Warn("list of manually cleared faults unreadable, retrying", "error", err)
		}
	}
	if ids == nil {
		return nil
	}
	if err := forget(ids); err != nil {
		return err
	}
	f.done = f.latest
	return nil
}

func (f *Clearances) read() (ClearedIDs, error) {
	if f.path == "" {
		return nil, nil
	}
	info, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("finding the list of manually cleared faults: %w", err)
	}
	f.latest = version{info.Size(), info.ModTime()}
	if f.latest == f.done {
		return nil, nil
	}
	if info.Mode()&0o022 != 0 || info.Size() > fileBytes {
		return nil, fmt.Errorf("list of manually cleared faults is invalid: %s has mode %s and %d bytes", f.path, info.Mode(), info.Size())
	}
	data, err := os.ReadFile(f.path)
	if err != nil {
		return nil, fmt.Errorf("reading the list of manually cleared faults: %w", err)
	}
	reported, err := record.ParseCleared(data)
	if err != nil {
		return nil, fmt.Errorf("list of manually cleared faults is invalid: %w", err)
	}
	ids := ClearedIDs{}
	for _, id := range reported.Records {
		ids[id] = true
	}
	return ids, nil
}
