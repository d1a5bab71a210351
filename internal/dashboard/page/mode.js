// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

/** hasLogin is true for the dashboard in a cluster, which sends this module itself: users log in, and a cookie has their session. */
export const hasLogin = false;
