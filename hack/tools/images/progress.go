package main

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// every is how often a long build reports its progress.
	every = 10 * time.Second
	// tail is how many of the compiler's last lines an error shows.
	tail = 40
)

// progressWriter shows the progress of a build.
type progressWriter struct {
	out   io.Writer
	began time.Time
}

func (p *progressWriter) line(format string, args ...any) {
	since := time.Since(p.began).Round(time.Second) //nolint:forbidigo // no test looks at how long it took
	fmt.Fprintf(p.out, "  %6s  %s\n", since, fmt.Sprintf(format, args...))
}

// run runs go build -v, and reports every ten seconds how many packages it compiled.
func (p *progressWriter) run(cmd *exec.Cmd, what string) error {
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var compiled atomic.Int64
	ended := make(chan struct{})
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		ticker := time.NewTicker(every) //nolint:forbidigo // the same
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				p.line("%s: compiling, %d packages so far", what, compiled.Load())
			}
		}
	}()
	var last []string
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if !strings.ContainsAny(lines.Text(), " :") { // a package, and no remark
			compiled.Add(1)
		}
		last = append(last, lines.Text())
		last = last[max(0, len(last)-tail):]
	}
	err = cmd.Wait()
	close(ended)
	<-reported
	if err != nil {
		return fmt.Errorf("%w\n%s", err, strings.Join(last, "\n"))
	}
	return nil
}
