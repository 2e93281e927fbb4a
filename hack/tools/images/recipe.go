package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	// source is where the suite's source is.
	source = "https://github.com/nvidia/nvsentinel"
	// service is the first program of an image.
	service = "service"
	// trusted is where Go looks for the authorities of TLS, and Debian has them.
	trusted = "etc/ssl/certs/ca-certificates.crt"
)

// recipe is what all images of a run have in common.
type recipe struct {
	Root, Out     string
	Registry, Tag string
	Platforms     []v1.Platform
	// Base is the image below programs with cgo; empty leaves them out.
	Base string
	// Beside is the folder with the tools of other platforms, below <os>-<architecture>/<tool>;
	// empty where there are none.
	Beside string
	// Authorities is the file with the authorities of TLS.
	Authorities string
	// Revision is the commit; empty where there is no git.
	Revision string
	// Time is that of every image and archive.
	Time time.Time
	// Push brings the images to the registry.
	Push     bool
	progress *progressWriter
}

// reference is the name by which the chart names the image.
func (r recipe) reference(image string) (name.Tag, error) {
	tag, err := name.NewTag(fmt.Sprintf("%s/%s:%s", r.Registry, image, r.Tag))
	if err != nil {
		return tag, fmt.Errorf("REGISTRY and TAG: %w", err)
	}
	return tag, nil
}

// find adds what the tree and this machine provide: the commit, its time, and whether there
// are authorities.
func (r *recipe) find(ctx context.Context, epoch string) error {
	r.Revision = r.git(ctx, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
	if epoch == "" {
		epoch = r.git(ctx, "log", "-1", "--format=%ct")
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return errors.New("the time of the images is that of the commit, and this is no git tree: set SOURCE_DATE_EPOCH to seconds since 1970")
	}
	r.Time = time.Unix(seconds, 0).UTC()
	text, err := os.ReadFile(r.Authorities)
	if err != nil || !x509.NewCertPool().AppendCertsFromPEM(text) {
		return fmt.Errorf("%s has no authorities of TLS: apt-get install ca-certificates, or name a file of certificates with AUTHORITIES=<file>", r.Authorities)
	}
	return nil
}

// git returns the output of git about the tree, and nothing where there is none.
func (r *recipe) git(ctx context.Context, args ...string) string {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", r.Root}, args...)...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// flags are go build's. The Dockerfile has the same.
func (r recipe) flags(e entry) []string {
	link := "-s -w -X github.com/nvidia/nvsentinel/internal/daemon.version=" + r.Tag
	if e.Cgo { // functions of a library are bound when they are called: an older one may lack those that never are
		link += " -extldflags=-Wl,-z,lazy"
	}
	// What git reports about the tree is in the labels; in the program it would make two
	// builds of the same sources differ.
	return []string{"-trimpath", "-buildvcs=false", "-tags=grpcnotrace", "-ldflags=" + link}
}

// compile builds an image's programs for a platform and returns where they are, by their
// names in the image. A program that is up to date is not linked again.
func (r recipe) compile(ctx context.Context, e entry, p v1.Platform) (tree, error) {
	cgo := "0"
	if e.Cgo {
		cgo = "1"
	}
	out := tree{}
	for _, pkg := range e.Packages {
		binary := filepath.Join(r.Out, "programs", p.OS+"-"+p.Architecture, e.Name, path.Base(pkg))
		cmd := exec.CommandContext(ctx, "go", append(append([]string{"build", "-v", "-o", binary}, r.flags(e)...), pkg)...)
		cmd.Dir = r.Root
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo, "GOOS="+p.OS, "GOARCH="+p.Architecture)
		if err := r.progress.run(cmd, e.Name+" "+p.String()); err != nil {
			return nil, fmt.Errorf("building %s for %s: %w", pkg, p, err)
		}
		name := path.Base(pkg)
		if len(out) == 0 {
			name = service
		}
		out[name] = binary
	}
	return out, nil
}

// beside has the script of a tool collect it, for images of this machine's platform. Tools of
// other platforms were collected there. It returns why there is nothing, if there is nothing.
func (r recipe) beside(ctx context.Context, e entry, p v1.Platform) (files tree, lacks string, err error) {
	if e.Tool == "" {
		return nil, "", nil
	}
	if !p.Equals(host()) {
		return r.collected(e.Tool, p)
	}
	if path, _ := exec.LookPath(e.Tool); path == "" {
		return nil, fmt.Sprintf("without %s, which this machine has not", e.Tool), nil
	}
	dir := filepath.Join(r.Out, "beside", e.Tool)
	if err := os.RemoveAll(dir); err != nil {
		return nil, "", err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(r.Root, "hack", e.Tool+".sh"), dir).CombinedOutput()
	if err != nil {
		return nil, "", fmt.Errorf("hack/%s.sh: %w\n%s", e.Tool, err, out)
	}
	files, err = walk(dir)
	return files, "", err
}

// collected is a tool that a machine of another platform has collected.
func (r recipe) collected(tool string, p v1.Platform) (files tree, lacks string, err error) {
	dir := filepath.Join(r.Beside, p.OS+"-"+p.Architecture, tool)
	if _, err := os.Stat(dir); r.Beside == "" || errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Sprintf("without %s, which is collected on a machine of the same platform alone", tool), nil
	}
	files, err = walk(dir)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("the folder %s is empty: collect the tool with hack/%s.sh again", dir, tool)
	}
	return files, "", err
}
