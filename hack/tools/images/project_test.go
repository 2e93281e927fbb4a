package main

import (
	"archive/tar"
	"bytes"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// project is a module with two programs of a line each; the second has a tool beside
// it, which the script collects with too many rights.
var project = map[string]string{
	"go.mod":        "module example.com/made\n\ngo 1.26.0\n",
	"alpha/main.go": "package main\n\nfunc main() { println(\"alpha\") }\n",
	"beta/main.go":  "package main\n\nfunc main() { println(\"beta\") }\n",
	"images.txt":    "# images\nalpha ./alpha\nbeta ./beta with sh # a shell\ngamma ./alpha needs cgo\ndelta ./alpha needs no-such-tool\nepsilon ./beta with no-such-tool\nzeta ./beta,./alpha\n",
	"hack/sh.sh":    "#!/bin/sh\nmkdir -p $1/usr/bin $1/usr/lib && cp $0 $1/usr/bin/sh && chmod 6777 $1/usr/bin/sh && echo text > $1/usr/lib/b && chmod 600 $1/usr/lib/b\n",
}

// lay lays out the project in a folder of its own.
func lay(t *testing.T) string {
	t.Helper()
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dir := t.TempDir()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	// The certificate is in the standard library, and so always the same. What stands
	// before it makes the layer large enough to be seen in a table of megabytes.
	noise := make([]byte, 1<<19)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	files := map[string]string{"authorities.pem": hex.EncodeToString(noise) + "\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))}
	maps.Copy(files, project)
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o600)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o755
		}
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// build runs the command on a project and returns its status, the folder of the
// archives, and what it printed.
func build(t *testing.T, dir string, args ...string) (code int, out, output string) {
	t.Helper()
	out = filepath.Join(dir, "out")
	var text bytes.Buffer
	args = append([]string{"--root", dir, "--out", out, "--list", "images.txt", "--authorities", filepath.Join(dir, "authorities.pem"), "--tag", "1.2.3"}, args...)
	code = run(t.Context(), args, &text, &text)
	return code, out, text.String()
}

// mustBuild is build where nothing may fail.
func mustBuild(t *testing.T, dir string, args ...string) (out, output string) {
	t.Helper()
	code, out, output := build(t, dir, args...)
	if code != 0 {
		t.Fatalf("status %d:\n%s", code, output)
	}
	return out, output
}

// unpack opens an archive as an OCI layout, and returns the index with its name.
func unpack(t *testing.T, file string) (v1.ImageIndex, v1.Descriptor) {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entriesOf(t, bytes.NewReader(text)) {
		to := filepath.Join(dir, e.Name)
		if e.Typeflag == tar.TypeDir {
			err = os.MkdirAll(to, 0o755)
		} else {
			err = os.WriteFile(to, e.content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := top.IndexManifest()
	if err != nil || len(m.Manifests) != 1 {
		t.Fatalf("%v, %v", m, err)
	}
	idx, err := top.ImageIndex(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return idx, m.Manifests[0]
}

// packed is an entry of a tar archive.
type packed struct {
	*tar.Header
	content []byte
}

func (p packed) String() string { return fmt.Sprintf("%s %o %d:%d", p.Name, p.Mode, p.Uid, p.Gid) }

func entriesOf(t *testing.T, from io.Reader) (out []packed) {
	t.Helper()
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, packed{h, content})
	}
}
