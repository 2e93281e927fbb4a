package source

import (
	"errors"
	"strings"
	"testing"
)

const (
	fromKernel  = "Mar  1 12:00:00 gpu-1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
	fromProgram = "Mar  1 12:00:00 gpu-1 sshd[812]: Accepted publickey for root\n"
)

// TestACombinedLogIsRefused: in a file into which programs write, a line with the
// kernel's tag proves nothing: logger -t kernel writes one.
func TestACombinedLogIsRefused(t *testing.T) {
	for name, content := range map[string]string{
		"a line of a program":              fromKernel + fromProgram,
		"at the end of a large file":       strings.Repeat(fromKernel, 3*sample/len(fromKernel)) + fromProgram,
		"at the beginning of a large file": fromProgram + strings.Repeat(fromKernel, 3*sample/len(fromKernel)),
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, content)
			d.file.KernelOnly = true
			if err := d.file.Open(nil, ""); !errors.Is(err, ErrCombined) || !strings.Contains(err.Error(), "sshd") {
				t.Errorf("opened: %v", err)
			}
		})
	}
}

// What was read in one piece with a line of another program is not believed
// either, nor is what comes after it.
func TestAFileThatBecomesACombinedLogIsReadNoFurther(t *testing.T) {
	d := newDesk(t, fromKernel)
	d.file.KernelOnly = true
	if err := d.file.Open(nil, ""); err != nil {
		t.Fatal(err)
	}
	first, err := d.file.Read(10)
	if err != nil || len(first.Lines) != 1 {
		t.Fatalf("%v, %v", first.Lines, err)
	}
	d.add(d.path, fromKernel+fromProgram+fromKernel)
	for range 2 {
		if got, err := d.file.Read(10); !errors.Is(err, ErrCombined) || len(got.Lines) > 0 {
			t.Errorf("%v, %v", got.Lines, err)
		}
	}
	if err := d.file.Open(first.Lines[0].Cursor, ""); !errors.Is(err, ErrCombined) {
		t.Errorf("opened again: %v", err)
	}
}

func TestAnyFileIsReadForTests(t *testing.T) {
	d := newDesk(t, fromProgram+fromKernel)
	if err := d.file.Open(nil, ""); err != nil {
		t.Fatal(err)
	}
	if got, err := d.file.Read(10); err != nil || len(got.Lines) != 2 {
		t.Errorf("%v, %v", got.Lines, err)
	}
}
