// Command images makes an OCI image of each program of the suite, without a container
// runtime and without root: make images. What it makes depends on the sources, the
// Go version and the files that it takes from this machine, and not on when or where.
//
// Exit status: 0 the images are there, 1 something failed, 2 bad arguments or
// something that this machine lacks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// published is the repository that the chart names without values.
const published = "ghcr.io/nvidia/nvsentinel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	r, entries, err := read(ctx, args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "images:", err)
		return 2
	}
	var made summary
	if err := r.all(ctx, entries, &made); err != nil {
		fmt.Fprintln(stderr, "images:", err)
		return 1
	}
	if err := made.write(stdout); err != nil {
		fmt.Fprintln(stderr, "images:", err)
		return 1
	}
	if len(made.rows) == 0 {
		fmt.Fprintln(stderr, "images: nothing was made")
		return 2
	}
	return 0
}

// arguments is the arguments that are not the recipe's own.
type arguments struct{ list, platforms, only string }

// parse reads the arguments.
func parse(args []string, stderr io.Writer) (r recipe, s arguments, err error) {
	r.progress = &progressWriter{out: stderr, began: time.Now()}
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&r.Root, "root", ".", "Source `directory`.")
	flags.StringVar(&r.Out, "out", "bin/images", "Output `directory` of the archives.")
	flags.StringVar(&r.Registry, "registry", published, "Registry and repository that prefix the image names. A name without a host refers to Docker Hub.")
	flags.StringVar(&r.Tag, "tag", "", "Tag and version of the images.")
	flags.StringVar(&r.Base, "base", "", "Base `image` for programs that need cgo, with glibc, and with DCGM 4 for gpu-health-monitor.")
	flags.StringVar(&r.Authorities, "authorities", "/"+trusted, "`File` with the CA certificates for TLS.")
	flags.StringVar(&r.Beside, "beside", "", "`Directory` with tools that machines of other platforms collected, such as linux-arm64/journalctl.")
	flags.BoolVar(&r.Push, "push", false, "Push the images to the registry with the credentials of docker login.")
	flags.StringVar(&s.list, "list", "hack/tools/images/images.txt", "`File` that lists the images, relative to the sources.")
	flags.StringVar(&s.platforms, "platforms", "", "Platforms of the images, for example linux/amd64,linux/arm64. Empty is the platform of this machine.")
	flags.StringVar(&s.only, "only", "", "Names of the images to build, separated by commas. Empty builds all.")
	if err := flags.Parse(args); err != nil {
		return r, s, err
	}
	switch {
	case flags.NArg() > 0 || r.Tag == "":
		return r, s, fmt.Errorf("want --tag, and no argument that is no flag: %q", flags.Args())
	case r.Push && !given(flags, "registry"):
		return r, s, errors.New("PUSH=1 wants REGISTRY=<registry and repository>")
	}
	return r, s, nil
}

// given reports whether the arguments have a flag.
func given(flags *flag.FlagSet, name string) (is bool) {
	flags.Visit(func(f *flag.Flag) { is = is || f.Name == name })
	return is
}

// read reads the arguments, and finds what the images are made of.
func read(ctx context.Context, args []string, stderr io.Writer) (recipe, []entry, error) {
	r, s, err := parse(args, stderr)
	if err != nil {
		return r, nil, err
	}
	file, err := os.Open(filepath.Join(r.Root, s.list))
	if err != nil {
		return r, nil, err
	}
	defer file.Close()
	entries, err := readCatalog(file)
	if err != nil {
		return r, nil, err
	}
	if entries, err = choose(entries, s.only); err != nil {
		return r, nil, err
	}
	if r.Platforms, err = parsePlatforms(s.platforms); err != nil {
		return r, nil, err
	}
	if _, err := r.reference(entries[0].Name); err != nil {
		return r, nil, err
	}
	if r.Out, err = filepath.Abs(r.Out); err != nil {
		return r, nil, err
	}
	return r, entries, r.find(ctx, os.Getenv("SOURCE_DATE_EPOCH"))
}

// all makes one image after the other.
func (r recipe) all(ctx context.Context, entries []entry, made *summary) error {
	if err := os.MkdirAll(r.Out, 0o755); err != nil {
		return err
	}
	for i, e := range entries {
		r.progress.line("%s (%d of %d)", e.Name, i+1, len(entries))
		if err := r.one(ctx, e, made); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
	}
	return nil
}

// one makes an image for all platforms, with what belongs to it.
func (r recipe) one(ctx context.Context, e entry, made *summary) error {
	var variants []variant
	for _, p := range r.Platforms {
		v, err := r.make(ctx, e, p)
		var without leftOut
		switch {
		case errors.As(err, &without):
			made.leftOut = append(made.leftOut, fmt.Sprintf("%s for %s: %s", e.Name, p, without))
		case err != nil:
			return err
		default:
			variants = append(variants, v)
		}
	}
	if len(variants) == 0 {
		return nil
	}
	idx, err := index(variants)
	if err != nil {
		return err
	}
	if err := r.keep(ctx, e, idx, variants); err != nil {
		return err
	}
	digest, err := idx.Digest()
	if err != nil {
		return err
	}
	for _, v := range variants {
		if err := made.add(e.Name, digest, v); err != nil {
			return err
		}
	}
	return nil
}

// keep writes an image and its documents, and pushes them if asked to.
func (r recipe) keep(ctx context.Context, e entry, idx v1.ImageIndex, variants []variant) error {
	ref, err := r.reference(e.Name)
	if err != nil {
		return err
	}
	if err := r.archive(filepath.Join(r.Out, e.Name+".tar"), ref, idx, variants); err != nil {
		return err
	}
	subject, err := descriptor(idx)
	if err != nil {
		return err
	}
	docs, err := r.documents(e, subject, variants)
	if err != nil {
		return err
	}
	for _, doc := range docs {
		if err := os.WriteFile(filepath.Join(r.Out, e.Name+doc.Suffix), doc.Text, 0o644); err != nil {
			return err
		}
	}
	if !r.Push {
		return nil
	}
	r.progress.line("pushing %s", ref)
	return push(ctx, ref, idx, docs)
}
