// Command log-collector collects the logs of a GPU node into one archive and brings it to
// where it is kept. It is a step of a repair chain and runs in a Job on the node.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/repair-steps/internal/collector"
	"github.com/nvidia/nvsentinel/repair-steps/internal/delivery"
)

// settings is the configuration of log-collector.
type settings struct {
	Collector collector.Config `toml:"collect"`
	Storage   StorageConfig    `toml:"archive"`
	// TerminationLog gets one sentence about the end.
	TerminationLog string `toml:"terminationLog" flag:"termination-log" usage:"File for the result message, which must equal the terminationMessagePath of the Pod. Empty writes none."`
}

// Validate joins everything that is wrong.
func (s settings) Validate() error { return errors.Join(s.Collector.Validate(), s.Storage.Validate()) }

// purpose is the first sentence of the help.
const purpose = "log-collector collects the logs of a GPU node into one archive and uploads or stores it, as a step of a repair chain."

func main() {
	daemon.Once("log-collector", purpose, settings{Collector: collector.Default(), Storage: DefaultStorage(), TerminationLog: "/dev/termination-log"}, run)
}

func run(ctx context.Context, j *daemon.Job, cfg settings) error {
	word, err := collect(ctx, j, cfg)
	if err != nil {
		word = err.Error()
	}
	return errors.Join(err, delivery.WriteTermination(cfg.TerminationLog, word))
}

// collect makes and delivers the archive, and returns a sentence about what it did.
func collect(ctx context.Context, j *daemon.Job, cfg settings) (string, error) {
	where, err := Open(ctx, cfg.Storage, j.Clock, j.Log)
	if err != nil {
		return "", err
	}
	c := collector.Collector{Config: cfg.Collector, Path: os.Getenv("PATH"), Version: j.Version, Clock: j.Clock, Log: j.Log}
	file, m, err := c.Collect(ctx)
	if err != nil {
		return "", fmt.Errorf("creating the archive: %w", err)
	}
	at, err := where.Take(ctx, file)
	if err != nil {
		return "", err
	}
	n := m.Counts()
	word := fmt.Sprintf("%s: %d bytes, parts collected %d, failed %d, missing %d, left out %d", at, m.Bytes,
		n[collector.Collected], n[collector.Failed], n[collector.Missing], n[collector.LeftOut])
	j.Log.Info("archive stored", "where", at, "bytes", m.Bytes)
	return word, nil
}
