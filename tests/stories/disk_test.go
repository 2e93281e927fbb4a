package stories

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/report"
)

// disk is the node's disk, with the outbox of its monitor, which numbers the events of a story
// that has a monitor.
type disk struct {
	dir    string
	outbox *report.Outbox
	image  []byte
}

func (d *disk) file() string { return filepath.Join(d.dir, "outbox.db") }

// start starts the monitor, again or for the first time.
func (d *disk) start(t *testing.T) {
	t.Helper()
	d.stop(t)
	if d.dir == "" {
		d.dir = t.TempDir()
	}
	outbox, err := report.Open(d.file(), report.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d.outbox = outbox
}

func (d *disk) stop(t *testing.T) {
	t.Helper()
	if d.outbox == nil {
		return
	}
	if err := d.outbox.Close(); err != nil {
		t.Fatal(err)
	}
	d.outbox = nil
}

// change takes an image of the disk, or restores it, or loses the outbox. The
// monitor is down then, and starts again.
func (d *disk) change(t *testing.T, what string) {
	t.Helper()
	d.stop(t)
	var err error
	switch what {
	case "imaged":
		d.image, err = os.ReadFile(d.file())
	case "restored":
		err = os.WriteFile(d.file(), d.image, 0o600)
	case "lost":
		err = os.Remove(d.file())
	default:
		t.Fatalf("unknown: disk %q", what)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.start(t)
}

// number has the outbox number an event.
func (d *disk) number(t *testing.T, r *record.Record) {
	t.Helper()
	e := record.ToProto(r.Event)
	if err := d.outbox.Write(func(tx *report.Tx) error { return tx.Append(e) }); err != nil {
		t.Fatal(err)
	}
	r.Event = record.FromProto(e)
	r.Seq, r.SeqEpoch, _ = r.Event.Seq()
}
