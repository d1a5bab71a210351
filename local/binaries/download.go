// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// DownloadVariable is the address of released Kubernetes programs, such as https://dl.k8s.io/release. If it is set, the
// programs of Kubernetes are downloaded from there instead of built. The other programs are built.
const DownloadVariable = "EVERYNODE_KUBERNETES_DOWNLOAD"

const (
	// maxProgram bounds a download. The programs of Kubernetes 1.37 have up to 110 MB.
	maxProgram = 1 << 30
	// responseTimeout is how long a server may take to begin its response.
	responseTimeout = 30 * time.Second
)

// downloadedKey names the folder of downloaded programs: they are not those that the module with this key would give.
func downloadedKey(key string) string { return key + "-downloaded" }

// download gets the programs of the batch.
func (b *batch) download(ctx context.Context, progress io.Writer, dir string) error {
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return errors.New("the default HTTP transport has another type")
	}
	transport = transport.Clone()
	transport.ResponseHeaderTimeout = responseTimeout
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()
	for i, j := range b.jobs {
		fmt.Fprintf(progress, "downloading %s %s (%s, program %d of %d) …\n", j.name, j.version, b.part, i+1, len(b.jobs))
		if err := j.download(ctx, client, dir); err != nil {
			return fmt.Errorf("downloading %s: %w (without %s, it is built)", j.name, err, DownloadVariable)
		}
	}
	return nil
}

// url is where the program of this machine's platform is, in the layout of https://dl.k8s.io.
func (j job) url() string {
	return strings.TrimSuffix(j.from, "/") + "/" + j.version + "/bin/" + runtime.GOOS + "/" + runtime.GOARCH + "/" + j.name
}

// download gets a program and its checksum. It writes to a name of its own and renames: a program in the cache is always
// complete.
func (j job) download(ctx context.Context, client *http.Client, dir string) error {
	sum, err := checksum(ctx, client, j.url()+".sha256")
	if err != nil {
		return err
	}
	body, err := get(ctx, client, j.url())
	if err != nil {
		return err
	}
	defer body.Close()
	temp, err := os.CreateTemp(dir, "."+j.name+"-")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(temp, hash), io.LimitReader(body, maxProgram+1))
	if err := errors.Join(err, temp.Chmod(0o755), temp.Close()); err != nil {
		return fmt.Errorf("getting %s: %w", j.url(), err)
	}
	if n > maxProgram {
		return fmt.Errorf("%s is larger than %d bytes", j.url(), maxProgram)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != sum {
		return fmt.Errorf("%s has the SHA-256 %s, and %s.sha256 says %s", j.url(), got, j.url(), sum)
	}
	return os.Rename(temp.Name(), filepath.Join(dir, j.name))
}

var sha256Text = regexp.MustCompile(`^[0-9a-f]{64}\b`)

func checksum(ctx context.Context, client *http.Client, url string) (string, error) {
	body, err := get(ctx, client, url)
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, 1024))
	if err != nil {
		return "", fmt.Errorf("getting %s: %w", url, err)
	}
	sum := sha256Text.FindString(string(text))
	if sum == "" {
		return "", fmt.Errorf("%s does not begin with a SHA-256 in hexadecimal digits", url)
	}
	return sum, nil
}

func get(ctx context.Context, client *http.Client, url string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	return response.Body, nil
}
