// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command probe is what the tests of the local cluster run in pods.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "say":
		fmt.Println(args[1])
		return nil
	case len(args) == 2 && args[0] == "wait":
		fmt.Println("waiting")
		limit, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		time.Sleep(limit)
		fmt.Println("waited")
		return nil
	case len(args) == 2 && args[0] == "get":
		return get(args[1])
	case len(args) == 2 && args[0] == "serve":
		return http.ListenAndServe(":8080", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, args[1])
		}))
	case len(args) == 1 && args[0] == "reboot":
		return unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	case len(args) == 2 && args[0] == "host":
		return host(args[1])
	}
	return fmt.Errorf("unknown arguments %q", args)
}

// get asks the API server with the pod's own service account.
func get(url string) error {
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	ca, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		return err
	}
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	fmt.Println(response.Status)
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}

// host runs a script in the mount namespace of process 1, as a task on a node does.
func host(script string) error {
	runtime.LockOSThread()
	namespace, err := os.Open("/proc/1/ns/mnt")
	if err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS); err != nil {
		return err
	}
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
