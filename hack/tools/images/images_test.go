package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// TestTwoBuildsAreTheSame, of the same sources in other folders and at other times:
// every archive and every document, to the byte.
func TestTwoBuildsAreTheSame(t *testing.T) {
	one, other := lay(t), lay(t)
	if err := os.Chtimes(filepath.Join(other, "authorities.pem"), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	a, _ := mustBuild(t, one, "--only=alpha,beta")
	b, _ := mustBuild(t, other, "--only=beta,alpha")
	files, err := filepath.Glob(filepath.Join(a, "*.*"))
	if err != nil || len(files) != 6 { // an archive, a bill and a provenance each
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		x, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		y, err := os.ReadFile(filepath.Join(b, filepath.Base(file)))
		if err != nil || !bytes.Equal(x, y) {
			t.Errorf("%s differs in the second build: %v", filepath.Base(file), err)
		}
	}
}

// TestLayersOutliveCommits: another commit of the same sources makes another image of
// the same layers.
func TestLayersOutliveCommits(t *testing.T) {
	dir := lay(t)
	var images []v1.Hash
	var layers [][]v1.Hash
	for _, seconds := range []string{"1700000000", "1700000001"} {
		t.Setenv("SOURCE_DATE_EPOCH", seconds)
		out, _ := mustBuild(t, dir, "--only=beta")
		idx, top := unpack(t, filepath.Join(out, "beta.tar"))
		config, err := imageOf(t, idx, host()).ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		images, layers = append(images, top.Digest), append(layers, config.RootFS.DiffIDs)
	}
	if images[0] == images[1] || len(layers[0]) != 4 || !slices.Equal(layers[0], layers[1]) {
		t.Errorf("images %v with layers %v; want two images with the same four", images, layers)
	}
}

// TestImage reads an archive back: it is valid, and has what it should and no more.
func TestImage(t *testing.T) {
	dir := lay(t)
	out, _ := mustBuild(t, dir, "--only=beta", "--registry=registry.example.com/suite")
	idx, top := unpack(t, filepath.Join(out, "beta.tar"))
	if err := validate.Index(idx); err != nil {
		t.Fatal(err)
	}
	wantNames := map[string]string{"io.containerd.image.name": "registry.example.com/suite/beta:1.2.3", "org.opencontainers.image.ref.name": "1.2.3"}
	if !reflect.DeepEqual(top.Annotations, wantNames) {
		t.Errorf("the archive names its image %v, want %v", top.Annotations, wantNames)
	}
	img := imageOf(t, idx, host())
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{User: "65532:65532", Entrypoint: []string{"/service"}, Env: []string{"PATH=/usr/bin"}, Labels: map[string]string{
		"org.opencontainers.image.title": "beta", "org.opencontainers.image.version": "1.2.3", "org.opencontainers.image.revision": "",
		"org.opencontainers.image.source": source, "org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.base.name": "scratch",
	}}
	if !reflect.DeepEqual(config.Config, want) || config.Created.Unix() != 1700000000 {
		t.Errorf("the configuration is %+v, of %v; want %+v", config.Config, config.Created, want)
	}
	wantFiles := [][]string{
		{"etc/ 755 0:0", "etc/ssl/ 755 0:0", "etc/ssl/certs/ 755 0:0", "etc/ssl/certs/ca-certificates.crt 644 0:0"},
		{"usr/ 755 0:0", "usr/bin/ 755 0:0", "usr/bin/sh 755 0:0", "usr/lib/ 755 0:0", "usr/lib/b 644 0:0"},
		{"licenses/ 755 0:0", "licenses/std/ 755 0:0", "licenses/std/LICENSE 644 0:0", "licenses/std/PATENTS 644 0:0"},
		{"service 755 0:0"},
	}
	if got := filesOf(t, img); !reflect.DeepEqual(got, wantFiles) {
		t.Errorf("the layers have\n%v, want\n%v", got, wantFiles)
	}
}

// TestSeveralPrograms: the first is what the image runs, each other one has its own name,
// and the bill has the modules of all.
func TestSeveralPrograms(t *testing.T) {
	out, _ := mustBuild(t, lay(t), "--only=zeta")
	idx, _ := unpack(t, filepath.Join(out, "zeta.tar"))
	files := filesOf(t, imageOf(t, idx, host()))
	if got, want := files[len(files)-1], []string{"alpha 755 0:0", "service 755 0:0"}; !slices.Equal(got, want) {
		t.Errorf("its programs are %v, want %v", got, want)
	}
	bill, err := os.ReadFile(filepath.Join(out, "zeta."+strings.ReplaceAll(host().String(), "/", "-")+".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]int{`"name": "/alpha"`: 1, `"name": "/service"`: 1, `"name": "example.com/made"`: 1, `"name": "std"`: 1} {
		if got := strings.Count(string(bill), what); got != want {
			t.Errorf("the bill has %s %d times, want %d", what, got, want)
		}
	}
}

// TestDockersReader takes an archive as docker load did before it knew OCI's.
func TestDockersReader(t *testing.T) {
	out, _ := mustBuild(t, lay(t), "--only=alpha", "--registry=nvsentinel")
	tag, err := name.NewTag("nvsentinel/alpha:1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(filepath.Join(out, "alpha.tar"), &tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(img); err != nil {
		t.Error(err)
	}
	idx, top := unpack(t, filepath.Join(out, "alpha.tar"))
	ours, err := imageOf(t, idx, host()).ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := img.ConfigName(); err != nil || got != ours {
		t.Errorf("it is the image %v, want %v: %v", got, ours, err)
	}
	if got := top.Annotations["io.containerd.image.name"]; got != "docker.io/nvsentinel/alpha:1.2.3" {
		t.Errorf("containerd would name it %s, and the kubelet look for docker.io/nvsentinel/alpha:1.2.3", got)
	}
}

// TestPlatforms: an index has an image for each, whose program is of that platform.
func TestPlatforms(t *testing.T) {
	out, output := mustBuild(t, lay(t), "--only=alpha,beta", "--platforms", strings.Join(supportedPlatforms, ",")+",linux/amd64")
	idx, _ := unpack(t, filepath.Join(out, "alpha.tar"))
	if err := validate.Index(idx); err != nil {
		t.Error(err)
	}
	var services []string
	for _, text := range supportedPlatforms {
		os, arch, _ := strings.Cut(text, "/")
		p := v1.Platform{OS: os, Architecture: arch}
		img := imageOf(t, idx, p)
		if c, err := img.ConfigFile(); err != nil || c.OS != os || c.Architecture != arch {
			t.Errorf("the image for %s says it is for %s/%s: %v", text, c.OS, c.Architecture, err)
		}
		layers, err := img.Layers()
		if err != nil {
			t.Fatal(err)
		}
		digest, err := layers[len(layers)-1].Digest()
		if err != nil {
			t.Fatal(err)
		}
		services = append(services, digest.String())
	}
	if len(slices.Compact(services)) != len(supportedPlatforms) {
		t.Errorf("the programs are the same: %v", services)
	}
	if want := "without sh, which is collected on a machine of the same platform alone"; strings.Count(output, want) != 1 {
		t.Errorf("the summary says not once %q:\n%s", want, output)
	}
}

// TestLayersAreShared: two images without a tool differ in the last layer alone, and
// the total counts the other once.
func TestLayersAreShared(t *testing.T) {
	out, output := mustBuild(t, lay(t), "--only=alpha,epsilon")
	digests := map[v1.Hash]int64{}
	for _, file := range []string{"alpha.tar", "epsilon.tar"} {
		idx, _ := unpack(t, filepath.Join(out, file))
		layers, err := imageOf(t, idx, host()).Layers()
		if err != nil || len(layers) != 3 {
			t.Fatalf("%s has %d layers: %v", file, len(layers), err)
		}
		for _, l := range layers {
			digest, err := l.Digest()
			if err != nil {
				t.Fatal(err)
			}
			if digests[digest], err = l.Size(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var all int64
	for _, size := range digests {
		all += size
	}
	output = strings.Join(strings.Fields(output), " ")
	if total := fmt.Sprintf("counted once %s ", megabytes(all)); len(digests) != 4 || !strings.Contains(output, total) {
		t.Errorf("%d layers, want 4; the summary has no %q:\n%s", len(digests), total, output)
	}
}

// TestLeftOut: what cannot be made is reported, with what to do, and the rest is made.
func TestLeftOut(t *testing.T) {
	out, output := mustBuild(t, lay(t))
	for _, want := range []string{
		"left out: gamma for " + host().String() + ": it is built with cgo", "--build-arg SERVICES=./alpha --build-arg CGO=1", "BASE=<image>",
		"left out: delta for " + host().String() + ": without no-such-tool",
	} {
		if !strings.Contains(output, want) {
			t.Errorf("the summary does not say %q:\n%s", want, output)
		}
	}
	made, err := filepath.Glob(filepath.Join(out, "*.tar"))
	if err != nil || len(made) != 4 {
		t.Errorf("made %v, %v; want alpha, beta, epsilon and zeta", made, err)
	}
	if code, _, stderr := build(t, lay(t), "--only=gamma"); code != 2 || !strings.Contains(stderr, "nothing was made") {
		t.Errorf("status %d where nothing can be made:\n%s", code, stderr)
	}
}

func TestBadArguments(t *testing.T) {
	dir := lay(t)
	for name, tc := range map[string]struct {
		arg  string
		want []string
	}{
		"image":       {"--only=alpha,omega", []string{`"omega"`, "there are alpha, beta, gamma, delta, epsilon, zeta"}},
		"platform":    {"--platforms=linux/x86", []string{`"linux/x86"`, "there are linux/amd64, linux/arm64"}},
		"tag":         {"--tag=", []string{"--tag"}},
		"reference":   {"--tag=a/b", []string{"REGISTRY and TAG"}},
		"authorities": {"--authorities=" + filepath.Join(dir, "go.mod"), []string{"ca-certificates", "AUTHORITIES="}},
		"push":        {"--push", []string{"REGISTRY="}},
		"stray":       {"alpha", []string{`"alpha"`}},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, output := build(t, dir, tc.arg)
			for _, want := range tc.want {
				if code != 2 || !strings.Contains(output, want) {
					t.Errorf("status %d, want 2 and %q:\n%s", code, want, output)
				}
			}
		})
	}
	if err := os.WriteFile(filepath.Join(dir, "alpha", "main.go"), []byte("package main\n\nfunc main() { nonsense }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := build(t, dir, "--only=alpha"); code != 1 || !strings.Contains(stderr, "undefined: nonsense") {
		t.Errorf("status %d of a program that does not compile:\n%s", code, stderr)
	}
}

// TestCommit: revision and time are those of the commit; the revision shows a changed tree.
func TestCommit(t *testing.T) {
	dir := lay(t)
	t.Setenv("SOURCE_DATE_EPOCH", "")
	if code, _, output := build(t, dir, "--only=alpha"); code != 2 || !strings.Contains(output, "set SOURCE_DATE_EPOCH") {
		t.Errorf("status %d without git:\n%s", code, output)
	}
	t.Setenv("GIT_COMMITTER_DATE", "2024-01-02T03:04:05Z")
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "first"}} {
		if out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	out := filepath.Join(t.TempDir(), "out")
	for _, changed := range []string{"", "-dirty"} {
		if changed != "" {
			if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(project["go.mod"]+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		mustBuild(t, dir, "--only=alpha", "--out", out)
		idx, _ := unpack(t, filepath.Join(out, "alpha.tar"))
		config, err := imageOf(t, idx, host()).ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		head, err := exec.Command("git", "-C", dir, "rev-parse", "HEAD").Output()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := config.Config.Labels["org.opencontainers.image.revision"], strings.TrimSpace(string(head))+changed; got != want {
			t.Errorf("revision %q, want %q", got, want)
		}
		if got := config.Created.Format(time.RFC3339); got != "2024-01-02T03:04:05Z" {
			t.Errorf("created %s, want the commit's time", got)
		}
	}
}

// TestList: the suite's own list can be read, and a malformed line cannot.
func TestList(t *testing.T) {
	text, err := os.ReadFile("images.txt")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := readCatalog(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Tool == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join("..", "..", e.Tool+".sh")); err != nil {
			t.Errorf("%s has %s beside it: %v", e.Name, e.Tool, err)
		}
	}
	for _, line := range []string{"alpha", "alpha ./alpha cgo", "alpha ./alpha wants cgo"} {
		if got, err := readCatalog(strings.NewReader(line)); err == nil {
			t.Errorf("%q is read as %v", line, got)
		}
	}
}

// imageOf is the image of an index for a platform.
func imageOf(t *testing.T, idx v1.ImageIndex, p v1.Platform) v1.Image {
	t.Helper()
	m, err := idx.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range m.Manifests {
		if d.Platform.Equals(p) {
			img, err := idx.Image(d.Digest)
			if err != nil {
				t.Fatal(err)
			}
			return img
		}
	}
	t.Fatalf("no image for %s in %v", p, m.Manifests)
	return nil
}

// filesOf lists the files of each layer, with mode and owner.
func filesOf(t *testing.T, img v1.Image) (out [][]string) {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		content, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		var files []string
		for _, e := range entriesOf(t, content) {
			if e.ModTime.Unix() != 0 {
				t.Errorf("%s is of %v", e.Name, e.ModTime)
			}
			files = append(files, e.String())
		}
		out = append(out, files)
		content.Close()
	}
	return out
}
