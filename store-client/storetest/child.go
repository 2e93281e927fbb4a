package storetest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// Environment variables with which the suite starts its own binary as the process to kill.
const (
	childDSN  = "NVSENTINEL_STORETEST_DSN"
	childRole = "NVSENTINEL_STORETEST_ROLE"
	childLine = "storetest acknowledged "
	childIdle = "storetest idle"
)

// Child reports whether this process is one that a suite started to be killed; a
// TestMain may leave out what only the suite needs.
func Child() bool { return os.Getenv(childRole) != "" }

// child plays the role until it is killed.
func child(t *testing.T) bool {
	if !Child() {
		return false
	}
	if os.Getenv(childRole) == "save" {
		saveForever(t, Maintenances(t, os.Getenv(childDSN)))
	}
	s := Open(t, os.Getenv(childDSN), storeopen.Options{})
	switch role := os.Getenv(childRole); role {
	case "append":
		appendForever(t, s)
	case "consume":
		consumeForever(t, s)
	default:
		t.Fatalf("role %q", role)
	}
	return true
}

func appendForever(t *testing.T, s store.Store) {
	for {
		batch := faults(2)
		MustAppend(t, s, batch...)
		for _, r := range batch {
			fmt.Println(childLine + r.ID)
		}
	}
}

func consumeForever(t *testing.T, s store.Store) {
	f := openFeed(t, s, "killed", record.ProcessableHealthEventInserts())
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		r, position, err := f.Next(ctx)
		idle := ended(ctx, err)
		cancel()
		if idle {
			fmt.Println(childIdle)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		// The effect comes before the commit.
		fmt.Println(childLine + r.ID)
		if err := f.Commit(t.Context(), position); err != nil {
			t.Fatal(err)
		}
	}
}

// killAfter runs a child and kills it after n lines, or when it is idle.
// It returns the lines that the child printed before its death.
func killAfter(t *testing.T, dsn, role string, n int) []string {
	t.Helper()
	top, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.CommandContext(within(t), os.Args[0], "-test.run=^"+top+"$", "-test.v")
	cmd.Env = append(os.Environ(), childDSN+"="+dsn, childRole+"="+role)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for scan := bufio.NewScanner(out); scan.Scan(); {
		id, ok := strings.CutPrefix(scan.Text(), childLine)
		if ok {
			lines = append(lines, id)
		}
		if ok && len(lines) == n || scan.Text() == childIdle {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
		t.Fatalf("the child ended by itself (%v) after %d lines", err, len(lines))
	}
	return lines
}
