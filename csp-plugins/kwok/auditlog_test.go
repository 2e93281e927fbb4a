package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var entries = []Entry{
	{Time: time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC), Verb: "SendRebootSignal", Node: "n", Key: "k", RequestID: "r", Effect: Accepted, BootID: "b"},
	{Time: time.Date(2026, 3, 1, 12, 0, 1, 0, time.UTC), Verb: "SendRebootSignal", Node: "n", Key: "k", RequestID: "r", Effect: Lied, Fault: "lie"},
}

func written(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sub", "journal.jsonl")
	b, old, err := OpenAuditLog(path)
	if err != nil || len(old) != 0 {
		t.Fatalf("opening new books: %v, %v", old, err)
	}
	for _, e := range entries {
		if err := b.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestJournalIsRestored(t *testing.T) {
	b, got, err := OpenAuditLog(written(t))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if diff := cmp.Diff(entries, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

// A crash in the middle of a write leaves a part of a line: it is as if the
// entry had not been written, and the next one starts on a line of its own.
func TestTornLastLineIsCut(t *testing.T) {
	path := written(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 1; cut < 40; cut += 7 {
		if err := os.WriteFile(path, whole[:len(whole)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		b, got, err := OpenAuditLog(path)
		if err != nil {
			t.Fatalf("cut by %d: %v", cut, err)
		}
		if diff := cmp.Diff(entries[:1], got); diff != "" {
			t.Errorf("cut by %d (-want +got):\n%s", cut, diff)
		}
		if err := b.Write(entries[1]); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != string(whole) {
			t.Errorf("cut by %d and written again: %q, %v", cut, now, err)
		}
	}
}

func TestCorruptJournalIsAnError(t *testing.T) {
	path := written(t)
	if err := os.WriteFile(path, []byte("{}\nnonsense\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenAuditLog(path); err == nil {
		t.Error("books with a broken line in the middle were opened")
	}
}

// A write that fails leaves the journal as it was.
func TestFailedWriteIsNotInTheAuditLog(t *testing.T) {
	path := written(t)
	b, _, err := OpenAuditLog(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Write(entries[0]); err == nil {
		t.Error("writing into closed books succeeded")
	}
	b, got, err := OpenAuditLog(path)
	if err != nil || len(got) != len(entries) {
		t.Errorf("%d entries, %v; want %d", len(got), err, len(entries))
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
