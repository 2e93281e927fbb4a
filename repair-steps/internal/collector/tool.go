package collector

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// tool is a program that was found.
type tool struct {
	// path of the program, as the process that runs it sees it.
	path string
	// root is the folder that the process takes for /; empty is our own.
	root string
}

// folders of a root in which programs are.
var folders = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// find looks for a program: beside ours, in the folders of path, and then in the roots
// of the host, from where it is run with that root for its own.
func find(name, path string, roots []string) (tool, bool) {
	for _, dir := range filepath.SplitList(path) {
		if dir != "" && executable(os.Stat(filepath.Join(dir, name))) {
			return tool{path: filepath.Join(dir, name)}, true
		}
	}
	for _, root := range roots {
		for _, dir := range folders {
			info, err := os.Lstat(filepath.Join(root, dir, name))
			link := err == nil && info.Mode().Type() == os.ModeSymlink // to be followed in that root, not in ours
			if link || executable(info, err) {
				return tool{path: filepath.Join(dir, name), root: root}, true
			}
		}
	}
	return tool{}, false
}

func executable(info os.FileInfo, err error) bool {
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// seen is how the tool sees a path of ours; ok is false if it can't.
func (t tool) seen(path string) (string, bool) {
	if t.root == "" {
		return path, true
	}
	inside, ok := strings.CutPrefix(filepath.Clean(path), filepath.Clean(t.root))
	if !ok || inside != "" && inside[0] != '/' {
		return "", false
	}
	return "/" + strings.TrimPrefix(inside, "/"), true
}

// command is the tool with its arguments, as the manifest tells it.
func (t tool) command(args []string) []string {
	if t.root == "" {
		return slices.Concat([]string{t.path}, args)
	}
	return slices.Concat([]string{"chroot", t.root, t.path}, args)
}
