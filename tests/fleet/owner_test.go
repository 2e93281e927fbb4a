package fleet

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFoldersOfTheDead: what a killed process left is removed at the next
// start, and nothing else.
func TestFoldersOfTheDead(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	me, err := owner(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("/bin/sh", "-c", "read _")
	input, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	killed, err := owner(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
	_ = input.Close()
	reused := strings.Fields(me)
	reused[2] = "1" + reused[2]
	kept := map[string]bool{"nvsentinel-alive": true, "nvsentinel-torn": true, "nvsentinel-elsewhere": true, "nvsentinel-none": true, "other-dead": true}
	for name, text := range map[string]string{
		"nvsentinel-alive": me, "nvsentinel-killed": killed, "nvsentinel-reused": strings.Join(reused, " "),
		"nvsentinel-torn": killed[:len(killed)/2], "nvsentinel-elsewhere": "pid:[1] 1 1", "nvsentinel-none": "", "other-dead": killed,
	} {
		dir := filepath.Join(temp, name)
		if err := os.MkdirAll(filepath.Join(dir, "machines"), 0o755); err != nil {
			t.Fatal(err)
		}
		if name == "nvsentinel-none" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, ownerFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := makeDir()
	if err != nil {
		t.Fatal(err)
	}
	kept[filepath.Base(dir)] = true
	entries, err := os.ReadDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !kept[e.Name()] {
			t.Errorf("%s is still there", e.Name())
		}
		delete(kept, e.Name())
	}
	for name := range kept {
		t.Errorf("%s was removed", name)
	}
	if text, err := os.ReadFile(filepath.Join(dir, ownerFile)); err != nil || dead(string(text)) {
		t.Errorf("the new folder has no living owner: %q, %v", text, err)
	}
}
