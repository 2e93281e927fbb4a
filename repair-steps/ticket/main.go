// Command ticket writes one ticket about a repair: one POST request, whose key is the same
// however often it is sent. It is a step of a repair chain and runs in a Job.
package main

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/repair-steps/internal/delivery"
	"github.com/nvidia/nvsentinel/repair-steps/internal/ticket"
)

// config is the configuration of ticket.
type config struct {
	Ticket ticket.Config `toml:"ticket"`
	// TerminationLog gets the answer.
	TerminationLog string `toml:"terminationLog" flag:"termination-log" usage:"File for the result message, which must equal the terminationMessagePath of the Pod. Empty writes none."`
}

// Validate joins everything that is wrong.
func (c config) Validate() error { return c.Ticket.Validate() }

// purpose is the first sentence of the help.
const purpose = "ticket creates a ticket about a remediation with one idempotent POST request, as a step of a repair chain."

func main() {
	daemon.Once("ticket", purpose, config{Ticket: ticket.Default(), TerminationLog: "/dev/termination-log"}, run)
}

func run(ctx context.Context, j *daemon.Job, cfg config) error {
	answer, err := send(ctx, j, cfg.Ticket)
	word := answer.String()
	if err != nil {
		word = err.Error()
	} else {
		j.Log.Info("ticket accepted", "answer", word)
	}
	return errors.Join(err, delivery.WriteTermination(cfg.TerminationLog, word))
}

func send(ctx context.Context, j *daemon.Job, cfg ticket.Config) (delivery.Answer, error) {
	body, err := ticket.Write(cfg)
	if err != nil {
		return delivery.Answer{}, err
	}
	sender, err := delivery.New(cfg.Sending, j.Clock, j.Log)
	if err != nil {
		return delivery.Answer{}, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return sender.Send(ctx, cfg.Request(open, int64(len(body))))
}
