"""Page of this user's work in the browser: clusters, jobs, records, schedules, pools and sizes.

``hyperplane ui`` serves it on the loopback address. Views make HTML, which works without scripts;
``live.js`` only replaces the parts of a page that have changed.
"""
