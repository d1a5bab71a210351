// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package archive decides where the whole outputs of attempts are stored. The manager reads the credentials of the archive
// from files, and gives each attempt a URL with which only its own output can be written. It sends no requests.
package archive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/trust"
)

// Files in Config.Directory.
const (
	fileURL          = "url"
	fileEndpoint     = "endpoint"
	fileRegion       = "region"
	fileAccessKeyID  = "access-key-id"
	fileSecretKey    = "secret-access-key"
	fileSessionToken = "session-token"
	fileCA           = "ca.crt"
)

const (
	// DefaultMaxBytes is the default of Config.MaxBytes.
	DefaultMaxBytes = 16 << 20
	// MinMaxBytes is the lower bound of Config.MaxBytes.
	MinMaxBytes = 64 << 10
	// MaxMaxBytes is the upper bound of Config.MaxBytes.
	MaxMaxBytes = 256 << 20
	// DefaultUploadTime is the default of Config.UploadTime.
	DefaultUploadTime = 30 * time.Second

	// maxFileBytes limits each of the files. The certificates are in each pod.
	maxFileBytes = 32 << 10
	// maxURLBytes limits url and endpoint.
	maxURLBytes   = 256
	defaultRegion = "us-east-1"
)

// Config says where the archive is described.
type Config struct {
	// Directory has the files of docs/archive.md. They are read before pods are created. "" for no archive.
	Directory string
	// MaxBytes is how much of the output of an attempt is stored.
	MaxBytes int64
	// UploadTime limits the upload of an output.
	UploadTime time.Duration
}

// ErrNone says that the manager has no archive.
var ErrNone = errors.New("the manager has no archive")

// Store is the archive, as the files describe it.
type Store struct {
	config *Config
	// base is the URL below which outputs are stored, and location the same as it is shown.
	base, location string
	ca             string
	// signer is nil if requests are not signed.
	signer *signer
}

// Open reads the files. An error says what to correct, and does not contain credentials.
func (c *Config) Open() (*Store, error) {
	if c.Directory == "" {
		return nil, ErrNone
	}
	files := map[string]string{}
	for _, name := range []string{fileURL, fileEndpoint, fileRegion, fileAccessKeyID, fileSecretKey, fileSessionToken, fileCA} {
		content, err := c.file(name)
		if err != nil {
			return nil, err
		}
		files[name] = strings.TrimSpace(content)
	}
	s := &Store{config: c, ca: files[fileCA]}
	if s.ca != "" {
		if _, err := trust.Roots([]byte(s.ca)); err != nil {
			return nil, fmt.Errorf("the file %s: %w", fileCA, err)
		}
	}
	target := files[fileURL]
	switch {
	case target == "":
		return nil, fmt.Errorf("the file %s is missing or empty: write the URL of the archive to it, such as s3://BUCKET/PREFIX", fileURL)
	case strings.HasPrefix(target, "s3://"):
		return s, s.s3(files)
	}
	return s, s.plain(files)
}

// file returns the content of a file in the directory; nothing if it does not exist.
func (c *Config) file(name string) (string, error) {
	f, err := os.Open(filepath.Join(c.Directory, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // it was only read
	content, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(content) > maxFileBytes {
		err = fmt.Errorf("the file %s has more than %d bytes", name, maxFileBytes)
	}
	return string(content), err
}

// Exposed reports whether signed URLs go over the network without encryption. Files that cannot be read expose nothing.
func (c *Config) Exposed() bool {
	s, err := c.Open()
	return err == nil && s.signer != nil && strings.HasPrefix(s.base, "http://")
}

var (
	// bucketName matches the names that S3 allows. Source: Amazon S3 User Guide, bucket naming rules.
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	// folders match a path without special characters: nothing in it has to be escaped in a URL or a signature.
	folders = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._=-]*/)*$`)
	region  = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
)

// s3 reads the settings of a bucket.
func (s *Store) s3(files map[string]string) error {
	bucket, prefix, _ := strings.Cut(strings.TrimPrefix(files[fileURL], "s3://"), "/")
	prefix, err := folder(prefix)
	if err != nil || !bucketName.MatchString(bucket) || len(files[fileURL]) > maxURLBytes {
		return fmt.Errorf("the file %s is not of the form s3://BUCKET/PREFIX, with at most %d bytes and only letters, digits and ._=- in the prefix", fileURL, maxURLBytes)
	}
	for _, name := range []string{fileAccessKeyID, fileSecretKey} {
		if files[name] == "" {
			return fmt.Errorf("the file %s is missing or empty, and a URL that begins with s3:// needs it", name)
		}
	}
	s.signer = &signer{region: files[fileRegion], id: files[fileAccessKeyID], secret: files[fileSecretKey], token: files[fileSessionToken]}
	if s.signer.region == "" {
		s.signer.region = defaultRegion
	}
	if !region.MatchString(s.signer.region) {
		return fmt.Errorf("the file %s is not the name of a region, such as eu-central-1", fileRegion)
	}
	endpoint := files[fileEndpoint]
	if endpoint == "" {
		endpoint = "https://s3." + s.signer.region + ".amazonaws.com"
	}
	base, err := httpURL(fileEndpoint, endpoint)
	if err != nil {
		return err
	}
	s.base, s.location = base+bucket+"/"+prefix, "s3://"+bucket+"/"+prefix
	return nil
}

// plain reads the settings of another server.
func (s *Store) plain(files map[string]string) error {
	for _, name := range []string{fileEndpoint, fileRegion, fileAccessKeyID, fileSecretKey, fileSessionToken} {
		if files[name] != "" {
			return fmt.Errorf("the file %s is for URLs that begin with s3://: remove it, or change the file %s", name, fileURL)
		}
	}
	base, err := httpURL(fileURL, files[fileURL])
	if err != nil {
		return err
	}
	if record.ValidLocation(base) == "" {
		return fmt.Errorf("the file %s has a host with special characters", fileURL)
	}
	s.base, s.location = base, base
	return nil
}

// httpURL returns a URL with a slash at its end.
func httpURL(file, value string) (string, error) {
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" || len(value) > maxURLBytes {
		return "", fmt.Errorf("the file %s is not a URL that begins with https://, http:// or s3://, without user, query and fragment, with at most %d bytes", file, maxURLBytes)
	}
	path, err := folder(strings.TrimPrefix(u.EscapedPath(), "/"))
	if err != nil {
		return "", fmt.Errorf("the file %s: %w", file, err)
	}
	return u.Scheme + "://" + u.Host + "/" + path, nil
}

// folder returns a path with a slash at its end, or "".
func folder(path string) (string, error) {
	if path != "" && !strings.HasSuffix(path, "/") {
		path += "/"
	}
	if !folders.MatchString(path) {
		return "", errors.New("each part of the path must begin with a letter or digit, and contain only letters, digits and ._=-")
	}
	return path, nil
}
