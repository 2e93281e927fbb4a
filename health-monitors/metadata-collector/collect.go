package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/health-monitors/internal/polling"
	"github.com/nvidia/nvsentinel/health-monitors/metadata-collector/inventory"
	"github.com/nvidia/nvsentinel/internal/durable"
)

// fileBytes bounds the file that is read back; a node's is a few KiB.
const fileBytes = 4 << 20

// Driver returns the GPUs of the node: nvml.Driver.
type Driver interface {
	Facts(ctx context.Context) (inventory.Facts, error)
}

// Collector writes the file. Its fields are set before Rounds.
type Collector struct {
	Node string
	// Path is the file.
	Path string
	// Sysfs is where sysfs is mounted, DriverPath the driver's folder in /proc.
	Sysfs, DriverPath string
	// Interval is the time between two looks at what costs nothing, Refresh the most
	// between two questions to the driver.
	Interval, Refresh time.Duration
	Driver            Driver
	BootID            func() (string, error)
	Clock             clock.WithTicker
	Log               *slog.Logger
	Metrics           *Metrics

	sign      string    // of the driver at the last question
	queriedAt time.Time // when it was answered
}

// Rounds are the looks of the collector. What fails leaves the file as it is.
func (c *Collector) Rounds() *polling.Rounds {
	return &polling.Rounds{
		Poll: c.Poll, Interval: c.Interval, Clock: c.Clock, Log: c.Log.With("file", c.Path), NotYet: "the driver has not been queried yet",
		Fails: "GPU metadata collection failed, the file stays unchanged", Works: "GPU metadata collection recovered",
		Failed: func(bool) { c.Metrics.Failures.Inc() },
	}
}

// Poll asks the driver if that is due, and writes the file if the answer has changed.
func (c *Collector) Poll(ctx context.Context) error {
	boot, err := c.BootID()
	if err != nil {
		return fmt.Errorf("reading the boot ID: %w", err)
	}
	present, err := c.present()
	if err != nil {
		c.Log.Warn("unreadable GPU metadata file found, replacing it", "error", err)
	}
	sign, now := c.driverSign(), c.Clock.Now()
	if present != nil && present.BootID == boot && sign == c.sign && now.Sub(c.queriedAt) < c.Refresh {
		return nil
	}
	seen, err := c.Driver.Facts(ctx)
	if err != nil {
		return err
	}
	for i := range seen.GPUs {
		seen.GPUs[i].NUMANode = c.numaNode(seen.GPUs[i].PCIAddress)
	}
	next, write, why := inventory.Next(present, seen, c.Node, boot, now)
	if write {
		if err := c.write(next); err != nil {
			return err
		}
		c.Metrics.Writes.WithLabelValues(string(why)).Inc()
		c.Log.Info("GPU metadata written", "reason", why, "gpus", len(next.GPUs), "driver", next.DriverVersion, "partial", seen.Partial)
	}
	c.Metrics.GPUs.Set(float64(len(next.GPUs)))
	c.sign, c.queriedAt = sign, now
	return nil
}

// present is the file as it is; nil if there is none that can be read.
func (c *Collector) present() (*inventory.Document, error) {
	info, err := os.Stat(c.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading GPU metadata: %w", err)
	}
	if info.Size() > fileBytes {
		return nil, fmt.Errorf("reading GPU metadata: the file has %d bytes, which is too large", info.Size())
	}
	data, err := os.ReadFile(c.Path)
	if err != nil {
		return nil, fmt.Errorf("reading GPU metadata: %w", err)
	}
	d, err := inventory.Decode(data)
	if err != nil {
		return nil, err
	}
	return &d, nil
}

// driverSign changes with the driver and its set of GPUs, and costs nothing to ask
// for.
func (c *Collector) driverSign() string {
	version, err := os.ReadFile(filepath.Join(c.DriverPath, "version"))
	if err != nil {
		version = nil // no driver is a state of it, too
	}
	sign := []string{string(version)}
	gpus, err := os.ReadDir(filepath.Join(c.DriverPath, "gpus"))
	if err == nil {
		for _, g := range gpus {
			sign = append(sign, g.Name())
		}
	}
	return strings.Join(sign, "\n")
}

// numaNode is that of a PCI device, -1 where it is not known.
func (c *Collector) numaNode(address string) int {
	if address == "" || filepath.Base(address) != address {
		return -1
	}
	data, err := os.ReadFile(filepath.Join(c.Sysfs, "bus/pci/devices", address, "numa_node"))
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return -1
	}
	return n
}

// write replaces the file at once: a reader sees the old one or the new one.
func (c *Collector) write(d inventory.Document) error {
	data, err := d.Encode()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o755); err != nil {
		return fmt.Errorf("creating the directory of the GPU metadata: %w", err)
	}
	if err := durable.Replace(c.Path, data, 0o644); err != nil {
		return fmt.Errorf("writing GPU metadata: %w", err)
	}
	return nil
}

// Metrics of the collector.
type Metrics struct {
	// Writes counts written files, by reason.
	Writes *prometheus.CounterVec
	// Failures counts collections that failed.
	Failures prometheus.Counter
	// GPUs is the number of GPUs in the file.
	GPUs prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		Writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_metadata_collector_file_writes_total", Help: "Writes of the GPU metadata file, by reason.",
		}, []string{"reason"}),
		Failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nvsentinel_metadata_collector_collection_failures_total", Help: "Collections of GPU metadata that failed and left the file unchanged.",
		}),
		GPUs: prometheus.NewGauge(prometheus.GaugeOpts{Name: "nvsentinel_metadata_collector_gpus", Help: "GPUs in the metadata file."}),
	}
	for _, why := range []inventory.Reason{
		inventory.First, inventory.Rebooted, inventory.Driver, inventory.GPUs, inventory.Links, inventory.Other,
	} {
		m.Writes.WithLabelValues(string(why))
	}
	r.MustRegister(m.Writes, m.Failures, m.GPUs)
	return m
}
