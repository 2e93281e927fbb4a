package nvml

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/metadata-collector/inventory"
)

// Argument is the first one of the process that asks; the second, which may be
// empty, is the path of the library.
const Argument = "nvml-read"

// Bounds of the output of the process.
const (
	outputBytes = 4 << 20
	errorBytes  = 4 << 10
)

// Main is that process: it prints the facts and returns its exit status.
func Main(library string, stdout, stderr io.Writer) int {
	facts, err := Read(library)
	if err == nil {
		err = json.NewEncoder(stdout).Encode(facts)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// Driver asks with a program, its own by default.
type Driver struct {
	// Program is run with Argument.
	Program string
	Library string
	// Deadline bounds one look.
	Deadline time.Duration

	busy chan struct{}
}

// New makes a driver that is asked by this program.
func New(library string, deadline time.Duration) (*Driver, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the executable of this process: %w", err)
	}
	return &Driver{Program: program, Library: library, Deadline: deadline, busy: make(chan struct{}, 1)}, nil
}

// answer is the result of a process.
type answer struct {
	facts inventory.Facts
	err   error
}

// Facts asks once. A process that cannot even be killed, because the driver holds
// it, is left behind, and none is started beside it.
func (d *Driver) Facts(ctx context.Context) (inventory.Facts, error) {
	select {
	case d.busy <- struct{}{}:
	default:
		return inventory.Facts{}, errors.New("querying the driver: an earlier query still hangs in it, retrying when it ends")
	}
	ctx, cancel := context.WithTimeout(ctx, d.Deadline)
	answers := make(chan answer, 1)
	go func() {
		facts, err := d.query(ctx)
		<-d.busy
		answers <- answer{facts, err}
	}()
	defer cancel()
	select {
	case a := <-answers:
		return a.facts, a.err
	case <-ctx.Done():
		return inventory.Facts{}, fmt.Errorf("querying the driver: no response within %s", d.Deadline)
	}
}

func (d *Driver) query(ctx context.Context) (inventory.Facts, error) {
	cmd := exec.CommandContext(ctx, d.Program, Argument, d.Library)
	out, output := &bounded{most: outputBytes}, &bounded{most: errorBytes}
	cmd.Stdout, cmd.Stderr = out, output
	cmd.WaitDelay = time.Second
	var facts inventory.Facts
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(output.buffer.String()); text != "" {
			return facts, errors.New(text)
		}
		return facts, fmt.Errorf("querying the driver: %w", err)
	}
	if err := json.Unmarshal(out.buffer.Bytes(), &facts); err != nil {
		return facts, fmt.Errorf("decoding the response of the driver: %w", err)
	}
	return facts, nil
}

// bounded keeps the beginning of what is written.
type bounded struct {
	buffer bytes.Buffer
	most   int
}

// Write keeps what fits and takes the rest too.
func (b *bounded) Write(p []byte) (int, error) {
	if capacity := b.most - b.buffer.Len(); capacity > 0 {
		b.buffer.Write(p[:min(capacity, len(p))])
	}
	return len(p), nil
}
