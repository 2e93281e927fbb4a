package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// start serves a registry with the command itself, and returns its address.
func start(t *testing.T) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	out, ended := io.Pipe()
	var stderr bytes.Buffer
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, []string{"serve", "--dir", t.TempDir()}, ended, &stderr)
		ended.Close()
	}()
	t.Cleanup(func() {
		stop()
		if code := <-done; code != 0 {
			t.Errorf("serve ended with status %d: %s", code, stderr.String())
		}
	})
	at, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(at)
}

// published is a release of one image with two platforms, and the files that it lists.
type published struct {
	tag    name.Tag
	digest v1.Hash
	dir    string
}

func (p published) verify() (int, string) {
	var out bytes.Buffer
	code := run(context.Background(), []string{"verify", "--digests", filepath.Join(p.dir, "digests.txt"), "--documents", p.dir}, &out, &out)
	return code, out.String()
}

// publish pushes an image of two platforms with the documents that attach chooses.
func publish(t *testing.T, at string, attach func(file string) bool) published {
	t.Helper()
	tag, err := name.NewTag(at + "/suite/alpha:1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	p := published{tag: tag, dir: t.TempDir()}
	subjects := map[string]partial.Describable{}
	var all v1.ImageIndex = empty.Index
	for _, arch := range []string{"amd64", "arm64"} {
		img, err := random.Image(64, 1)
		if err != nil {
			t.Fatal(err)
		}
		all = mutate.AppendManifests(all, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
		subjects["alpha.linux-"+arch+".cdx.json"] = img
	}
	if err := remote.WriteIndex(tag, all); err != nil {
		t.Fatal(err)
	}
	if p.digest, err = all.Digest(); err != nil {
		t.Fatal(err)
	}
	subjects["alpha.provenance.json"] = all
	for file, subject := range subjects {
		text := fmt.Sprintf(`{"subject": [{"digest": {"sha256": %q}}]}`, p.digest.Hex)
		write(t, filepath.Join(p.dir, file), text)
		if attach(file) {
			refer(t, tag, subject, file, text)
		}
	}
	write(t, filepath.Join(p.dir, "digests.txt"), tag.Name()+"@"+p.digest.String()+"\n")
	return p
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// refer attaches a document to its subject.
func refer(t *testing.T, tag name.Tag, subject partial.Describable, file, text string) {
	t.Helper()
	kind := types.MediaType(billOfMaterials)
	if strings.HasSuffix(file, ".provenance.json") {
		kind = statement
	}
	descriptor, err := partial.Descriptor(subject)
	if err != nil {
		t.Fatal(err)
	}
	bare := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), kind)
	img, err := mutate.Append(bare, mutate.Addendum{Layer: static.NewLayer([]byte(text), kind)})
	if err != nil {
		t.Fatal(err)
	}
	artifact := mutate.Subject(img, *descriptor).(v1.Image)
	digest, err := artifact.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag.Context().Digest(digest.String()), artifact); err != nil {
		t.Fatal(err)
	}
}

// TestAttestations: the file names each document with its subject, for the program that signs.
func TestAttestations(t *testing.T) {
	p := publish(t, start(t), everything)
	file := filepath.Join(p.dir, "attestations.txt")
	var out bytes.Buffer
	if code := run(t.Context(), []string{"verify", "--digests", filepath.Join(p.dir, "digests.txt"), "--documents", p.dir, "--attestations", file}, &out, &out); code != 0 {
		t.Fatalf("status %d: %s", code, out.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 3 || lines[0] != p.tag.Context().Name()+"@"+p.digest.String()+" slsaprovenance1 alpha.provenance.json" ||
		!strings.HasSuffix(lines[1], " cyclonedx alpha.linux-amd64.cdx.json") || !strings.HasSuffix(lines[2], " cyclonedx alpha.linux-arm64.cdx.json") {
		t.Errorf("it has the lines %q", lines)
	}
}

func everything(string) bool { return true }

func TestVerify(t *testing.T) {
	at := start(t)
	p := publish(t, at, everything)
	code, output := p.verify()
	if code != 0 || !strings.Contains(output, p.digest.String()+" (linux/amd64, linux/arm64)") {
		t.Errorf("status %d:\n%s", code, output)
	}
}

// TestVerifyFindsWhatDiffers: each defect of a release fails the verification and is named.
func TestVerifyFindsWhatDiffers(t *testing.T) {
	at := start(t)
	for name, tc := range map[string]struct {
		attach func(string) bool
		change func(published)
		want   string
	}{
		"no list of contents": {func(file string) bool { return file != "alpha.linux-arm64.cdx.json" }, nil, "has 0 documents of the kind " + billOfMaterials},
		"no provenance":       {func(file string) bool { return file != "alpha.provenance.json" }, nil, "has 0 documents of the kind " + statement},
		"other document": {everything, func(p published) {
			write(t, filepath.Join(p.dir, "alpha.linux-amd64.cdx.json"), "{}")
		}, "differs from alpha.linux-amd64.cdx.json"},
		"other digest": {everything, func(p published) {
			write(t, filepath.Join(p.dir, "digests.txt"), p.tag.Name()+"@sha256:"+strings.Repeat("0", 64))
		}, "the release lists sha256:000"},
		"other tag": {everything, func(p published) {
			write(t, filepath.Join(p.dir, "digests.txt"), p.tag.Context().Name()+":9.9.9@"+p.digest.String())
		}, "MANIFEST_UNKNOWN"},
		"empty list": {everything, func(p published) { write(t, filepath.Join(p.dir, "digests.txt"), "\n") }, "nothing was published"},
		"no digest":  {everything, func(p published) { write(t, filepath.Join(p.dir, "digests.txt"), p.tag.Name()) }, "repository:tag@digest"},
	} {
		t.Run(name, func(t *testing.T) {
			p := publish(t, at, tc.attach)
			if tc.change != nil {
				tc.change(p)
			}
			if code, output := p.verify(); code != 1 || !strings.Contains(output, tc.want) {
				t.Errorf("status %d, want 1 and %q:\n%s", code, tc.want, output)
			}
		})
	}
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{nil, {"publish"}, {"serve"}, {"verify"}, {"verify", "--digests", "a", "--documents", "b", "stray"}} {
		var out bytes.Buffer
		if code := run(t.Context(), args, &out, &out); code != 2 || out.Len() == 0 {
			t.Errorf("%q: status %d, want 2 and a message: %s", args, code, out.String())
		}
	}
}
