package nodefile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBootIDOfTheKernel(t *testing.T) {
	id, err := BootID("/proc/sys/kernel/random/boot_id")()
	if err != nil || len(id) != 36 {
		t.Errorf("id %q, error %v", id, err)
	}
	if _, err := BootID(filepath.Join(t.TempDir(), "none"))(); err == nil {
		t.Error("a missing file gave a boot id")
	}
}

// The content of a file without a boot id must not count as a new boot.
func TestOddFilesHoldNoBootID(t *testing.T) {
	for _, content := range []string{"", "\n", "two words", "a\x00b", strings.Repeat("a", 129)} {
		path := filepath.Join(t.TempDir(), "boot_id")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if id, err := BootID(path)(); err == nil {
			t.Errorf("%.20q gave boot id %q", content, id)
		}
	}
}

// A process is of one boot, whatever becomes of the file. A file without a boot id is read
// again.
func TestAProcessIsOfOneBoot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "boot_id")
	read := OwnBootID(BootID(path))
	for _, step := range []struct{ content, want string }{{"", ""}, {"first\n", "first"}, {"second\n", "first"}, {"", "first"}} {
		if err := os.WriteFile(path, []byte(step.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if id, err := read(); id != step.want || (err == nil) != (step.want != "") {
			t.Errorf("with %q in the file: %q, %v; want %q", step.content, id, err, step.want)
		}
	}
}
