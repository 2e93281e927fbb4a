package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// shell is a person at a terminal: the repository's chart is in its folder, helm,
// kubectl and nvsentinel are in its path, and it has an administrator's kubeconfig.
type shell struct {
	dir string
	env []string
}

// newShell makes the folder.
func newShell(s *site) (shell, error) {
	dir := filepath.Join(s.Work, "terminal")
	if err := os.MkdirAll(filepath.Join(dir, "home"), 0o755); err != nil {
		return shell{}, err
	}
	for _, name := range []string{"distros", "examples"} {
		if err := os.Symlink(filepath.Join(s.Root, name), filepath.Join(dir, name)); err != nil {
			return shell{}, err
		}
	}
	path := strings.Join([]string{s.Bin, filepath.Dir(s.bins.Kubectl), "/usr/sbin:/usr/bin:/sbin:/bin"}, ":")
	authority := filepath.Join(s.cluster.Dir(), "pki", "ca.crt") // of the registry
	return shell{dir: dir, env: []string{
		"PATH=" + path, "KUBECONFIG=" + s.cluster.AdminKubeconfig(), "HOME=" + filepath.Join(dir, "home"), "SSL_CERT_FILE=" + authority, "NO_COLOR=1",
	}}, nil
}

// run runs a script, and returns its output.
func (s shell) run(ctx context.Context, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = s.dir, s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w: %s", script, err, out)
	}
	return string(out), nil
}

// write a file that commands name.
func (s shell) write(name, text string) error {
	return os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600)
}

// pages are the texts of the pages whose commands a run takes, one after the other.
func pages(root string) (string, error) {
	var out strings.Builder
	for _, page := range []string{"docs/get-started/install.md", "docs/tasks/upgrade.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			return "", fmt.Errorf("reading the commands to run: %w", err)
		}
		out.Write(append(text, '\n'))
	}
	return out.String(), nil
}

// commands are those of the first block of code on a page that has a text in it, each
// with its continuations.
func commands(page, having string) ([]string, error) {
	for i, block := range strings.Split(page, "```") {
		if i%2 == 0 || !strings.Contains(block, having) {
			continue
		}
		_, block, _ = strings.Cut(block, "\n") // the language
		var out []string
		for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
			if line = strings.TrimSpace(line); line != "" {
				out = append(out, line)
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("the page has no block of code with %q", having)
}
