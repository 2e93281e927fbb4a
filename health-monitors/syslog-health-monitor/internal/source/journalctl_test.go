package source

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

func TestJournalctlThatCannotWorkIsAnErrorNotAnEnd(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "journalctl")
	write := func(text string) {
		if err := os.WriteFile(script, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	clk := testclock.NewFakeClock(time.Unix(1_900_000_000, 0))
	s := NewJournal(filepath.Join(dir, "none"), dir, clk)
	if err := s.Open(nil, bootA); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing tool gives %v", err)
	}
	write("echo unsupported feature >&2; exit 3\n")
	r := &reading{t: t, clock: clk, s: NewJournal(script, dir, clk)}
	if err := r.s.Open(nil, bootA); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := r.untilError(); !errors.As(err, &exit) || !strings.Contains(err.Error(), "unsupported feature") {
		t.Errorf("error is %v", err)
	}
	write("exec sleep 600\n")
	r = &reading{t: t, clock: clk, s: NewJournal(script, dir, clk)}
	if err := r.s.Open(nil, bootA); err != nil {
		t.Fatal(err)
	}
	defer r.s.Close()
	if b, err := r.s.Read(1); err != nil || b.End {
		t.Errorf("a silent reader gave %+v, %v", b, err)
	}
	for range 4 { // each within the time that a reader may wait for us
		clk.Step(lagLimit)
		if _, err := r.s.Read(1); err != nil {
			if n := r.s.Counts().Restarts; n != 1 {
				t.Errorf("%d restarts counted", n)
			}
			return
		}
	}
	t.Error("a hanging journalctl was not given up")
}
