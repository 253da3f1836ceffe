/**
 * `npm run test:setup`: sets up a server with `gateway setup` in namespaces of its own, with a DNS server and the
 * ACME authority of the tests, up to HTTPS with a certificate of that authority. The only manual step is what an
 * owner does, too: it adds the DNS records that the command prints. A stand-in for systemctl starts what the
 * installed unit says. Needs root, unshare and ip.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import process from 'node:process'
import { setUpServer } from './server.ts'

const INSIDE = 'SETUP_IN_NAMESPACE'
/** Files of the machine stay as they are: the folders that the setup writes to are copies. */
const PREPARE = `set -eu
ip link set lo up
ip link add server type veth peer name router
ip address add 203.0.113.7/24 dev server
ip address add 203.0.113.53/32 dev lo
ip link set server up
ip link set router up
cp -a /etc "$WORK/etc"
mount --bind "$WORK/etc" /etc
rm -rf /etc/device-gateway /etc/device-agent /etc/resolv.conf
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /usr/local/sbin
mount -t proc proc /proc
exec "$@"`

if (process.env[INSIDE]) {
  // Its servers are open until then.
  process.exit(await setUpServer())
} else {
  if (process.getuid?.() !== 0)
    throw new Error('Run npm run test:setup as root: it needs namespaces.')
  const { mkdtempSync, rmSync } = await import('node:fs')
  const work = mkdtempSync('/var/tmp/device-agent-setup-')
  const namespaces = ['--net', '--mount', '--pid', '--fork', '--kill-child']
  const again = [process.execPath, ...process.execArgv, ...process.argv.slice(1)]
  const child = spawn('unshare', [...namespaces, 'sh', '-c', PREPARE, 'sh', ...again], {
    stdio: 'inherit',
    env: { ...process.env, [INSIDE]: '1', WORK: work },
  })
  // unshare ignores the milder signals. All processes of the namespaces end with it.
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.on(signal, () => void child.kill('SIGKILL'))
  const [status] = await once(child, 'exit')
  rmSync(work, { recursive: true, force: true })
  process.exitCode = status ?? 1
}
