package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// variant is an image for one platform, and what it is made of.
type variant struct {
	Image    v1.Image
	Platform v1.Platform
	// Programs are those of the entry; Files is everything that is in the image's own layers.
	Programs, Files tree
	// Base is the digest of what it is put upon; empty where that is nothing.
	Base string
	// Lacks is what is not in it.
	Lacks string
}

// leftOut is why there is no image.
type leftOut string

func (l leftOut) Error() string { return string(l) }

// make makes the image of one platform.
func (r recipe) make(ctx context.Context, e entry, p v1.Platform) (variant, error) {
	v := variant{Platform: p, Files: tree{}}
	base, digest, err := r.base(ctx, e, p)
	if err != nil {
		return v, err
	}
	v.Base = digest
	beside, lacks, err := r.beside(ctx, e, p)
	if err != nil {
		return v, err
	}
	if lacks != "" && e.Needed {
		return v, leftOut(lacks + ", it is of no use; the Dockerfile builds it")
	}
	v.Lacks = lacks
	if v.Programs, err = r.compile(ctx, e, p); err != nil {
		return v, err
	}
	texts, err := r.licenses(ctx, v.Programs)
	if err != nil {
		return v, err
	}
	// What images share comes first, and what changes with each commit last.
	for _, files := range []tree{{trusted: r.Authorities}, beside, texts, v.Programs} {
		if base, err = r.appendLayer(base, files); err != nil {
			return v, err
		}
		maps.Copy(v.Files, files)
	}
	v.Image, err = r.configure(base, e, p)
	return v, err
}

// appendLayer puts a layer with the files upon an image; no files are no layer.
func (r recipe) appendLayer(img v1.Image, files tree) (v1.Image, error) {
	if len(files) == 0 {
		return img, nil
	}
	layer, err := files.layer()
	if err != nil {
		return nil, err
	}
	return mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{
		Created: v1.Time{Time: r.Time}, CreatedBy: "make images: " + strings.Join(slices.Sorted(maps.Keys(files)), " "),
	}})
}

// base is the image that the layers are put upon, and its digest where it has one.
func (r recipe) base(ctx context.Context, e entry, p v1.Platform) (v1.Image, string, error) {
	switch {
	case !e.Cgo:
		return toOCI(empty.Image), "", nil
	case r.Base == "":
		return nil, "", leftOut(fmt.Sprintf("it is built with cgo, upon an image with the C library that it loads; name that with BASE=<image>, or: docker build --build-arg SERVICES=%s --build-arg CGO=1 --build-arg BASE=<image> -t %s/%s:%s .", strings.Join(e.Packages, ","), r.Registry, e.Name, r.Tag))
	case !p.Equals(host()):
		return nil, "", leftOut("with cgo it is built on a machine of the same platform alone")
	}
	ref, err := name.ParseReference(r.Base)
	if err != nil {
		return nil, "", fmt.Errorf("BASE: %w", err)
	}
	base, err := remote.Image(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithPlatform(p))
	if err != nil {
		return nil, "", fmt.Errorf("fetching the base: %w", err)
	}
	digest, err := base.Digest()
	return toOCI(base), digest.Hex, err
}

// toOCI gives an image OCI's types in place of Docker's.
func toOCI(img v1.Image) v1.Image {
	return mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
}

// configure sets what runs, as whom, and what the image is; it keeps what else a base sets.
func (r recipe) configure(img v1.Image, e entry, p v1.Platform) (v1.Image, error) {
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = p.OS, p.Architecture, v1.Time{Time: r.Time}
	c := &file.Config
	c.User, c.Entrypoint, c.Cmd = "65532:65532", []string{"/" + service}, nil
	c.Env = append(slices.DeleteFunc(c.Env, func(v string) bool { return strings.HasPrefix(v, "PATH=") }), "PATH=/usr/bin")
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	base := "scratch"
	if e.Cgo {
		base = r.Base
	}
	for key, value := range map[string]string{
		"title": e.Name, "version": r.Tag, "revision": r.Revision, "source": source, "licenses": "Apache-2.0", "base.name": base,
	} {
		c.Labels["org.opencontainers.image."+key] = value
	}
	return mutate.ConfigFile(img, file)
}

// index joins the images of all platforms. One platform has an index too: a node of another
// platform then reports the mismatch, instead of starting what it cannot run.
func index(variants []variant) (v1.ImageIndex, error) {
	var out []mutate.IndexAddendum
	for _, v := range variants {
		d, err := partial.Descriptor(v.Image)
		if err != nil {
			return nil, err
		}
		d.Platform = &v.Platform
		out = append(out, mutate.IndexAddendum{Add: v.Image, Descriptor: *d})
	}
	return mutate.AppendManifests(empty.Index, out...), nil
}
