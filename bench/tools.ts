import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** A folder that goes away with the process. */
export function scratchFolder(): string {
  const path = mkdtempSync(join(tmpdir(), 'device-agent-bench-'))
  if (folders.size === 0) process.once('exit', removeFolders)
  folders.add(path)
  return path
}

const folders = new Set<string>()

function removeFolders(): void {
  for (const path of folders) rmSync(path, { recursive: true, force: true })
}

/** Installs Debian packages whose programs are missing; says what to do where that fails. */
export function requirePrograms(packages: Readonly<Record<string, string>>): void {
  const missing = Object.entries(packages)
    .filter(([program]) => spawnSync('sh', ['-c', `command -v ${program}`]).status !== 0)
    .map(([, name]) => name)
  if (missing.length === 0) return
  progress(`installing ${missing.join(', ')}`)
  try {
    execFileSync('apt-get', ['update', '-qq'], { stdio: 'ignore' })
    execFileSync('apt-get', ['install', '-y', '-qq', ...missing], { stdio: 'ignore' })
  } catch {
    console.error(`The benchmark needs these packages: apt-get install ${missing.join(' ')}`)
    process.exit(1)
  }
}

export function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const address = server.address()
      server.close(() => resolve(typeof address === 'object' && address ? address.port : 0))
    })
  })
}

/** Of the file that goes up or down. */
export const LARGE_BYTES = 100 * 1_024 * 1_024

/** nginx as a device's service: `/` answers 12 bytes, `/large` 100 MiB. */
export async function startNginx(): Promise<number> {
  const folder = scratchFolder()
  const port = await freePort()
  writeFileSync(join(folder, 'large'), Buffer.alloc(LARGE_BYTES, 'x'))
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((name) => `${name}_temp_path ${folder}/${name};`)
    .join('\n')
  writeFileSync(
    join(folder, 'nginx.conf'),
    `worker_processes 1; daemon off; user root; pid ${folder}/pid; error_log stderr crit;
     events { worker_connections 1024; }
     http {
       access_log off; sendfile on; keepalive_requests 100000000; ${paths}
       server {
         listen 127.0.0.1:${port} backlog=1024;
         location = /large { root ${folder}; }
         location / { default_type text/plain; return 200 "hello world\\n"; }
       }
     }`,
  )
  const nginx = spawn('nginx', ['-c', join(folder, 'nginx.conf'), '-p', folder], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  process.on('exit', () => nginx.kill())
  await answers(port)
  return port
}

async function answers(port: number): Promise<void> {
  for (let attempt = 0; attempt < 200; attempt += 1) {
    const isUp = await fetch(`http://127.0.0.1:${port}/`).then(
      (response) => response.ok,
      () => false,
    )
    if (isUp) return
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  throw new Error(`nothing answers on port ${port}`)
}

export interface Load {
  readonly requestsPerSecond: number
  readonly p50Ms: number
  readonly p99Ms: number
  readonly errors: number
}

/** One run of wrk with one thread. `script` is a file of Lua that makes the requests. */
export async function wrk(
  url: string,
  host: string,
  connections: number,
  seconds: number,
  script?: string,
) {
  const options = ['-t1', `-c${connections}`, `-d${seconds}s`, '--latency', '-H', `Host: ${host}`]
  if (script !== undefined) options.push('-s', script)
  const child = spawn('wrk', [...options, url], { stdio: ['ignore', 'pipe', 'inherit'] })
  let text = ''
  for await (const chunk of child.stdout) text += chunk
  const number = (form: RegExp) => Number(form.exec(text)?.[1] ?? 0)
  const errors =
    number(/Non-2xx or 3xx responses: (\d+)/) +
    [...(/Socket errors: (.*)/.exec(text)?.[1]?.matchAll(/\d+/g) ?? [])].reduce(
      (sum, [count]) => sum + Number(count),
      0,
    )
  return {
    requestsPerSecond: number(/Requests\/sec:\s+([\d.]+)/),
    p50Ms: toMs(/50%\s+([\d.]+)(us|ms|s)/.exec(text)),
    p99Ms: toMs(/99%\s+([\d.]+)(us|ms|s)/.exec(text)),
    errors,
  } satisfies Load
}

/** One run of h2load with one thread over TLS; it reads no certificate. HTTP/2 unless `options` say `--h1`. */
export async function h2load(
  url: string,
  host: string,
  seconds: number,
  options: readonly string[],
): Promise<Omit<Load, 'p50Ms' | 'p99Ms'>> {
  const { port } = new URL(url)
  const words = ['-t1', `-D${seconds}`, `--connect-to=127.0.0.1:${port}`, ...options]
  const child = spawn('h2load', [...words, `https://${host}:${port}/`], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let text = ''
  for await (const chunk of child.stdout) text += chunk
  const [, done, failed, errored] =
    /requests: \d+ total, \d+ started, \d+ done, (\d+) succeeded, (\d+) failed, (\d+) errored/.exec(
      text,
    ) ?? []
  return {
    requestsPerSecond: Number(done) / seconds,
    errors: Number(failed ?? 1) + Number(errored ?? 0),
  }
}

function toMs(match: RegExpExecArray | null): number {
  const unit = { us: 0.001, ms: 1, s: 1_000 }[match?.[2] ?? 'ms'] ?? 1
  return Number(match?.[1] ?? 0) * unit
}

/** Megabytes per second of one download by curl. */
export async function download(url: string, host: string): Promise<number> {
  const format = '%{http_code} %{size_download} %{speed_download}'
  const options = ['-sS', '-o', '/dev/null', '-w', format, '-H', `Host: ${host}`]
  const child = spawn('curl', [...options, url], { stdio: ['ignore', 'pipe', 'inherit'] })
  let text = ''
  for await (const chunk of child.stdout) text += chunk
  const [status, size, speed] = text.split(' ')
  if (status !== '200' || Number(size) !== LARGE_BYTES) {
    throw new Error(`the download answered ${text}`)
  }
  return Number(speed) / 1_000_000
}

/** Megabytes per second of one upload by curl; the service answers with how many bytes came. */
export async function upload(url: string, host: string, file: string): Promise<number> {
  const format = ' %{http_code} %{speed_upload}'
  const options = ['-sS', '-w', format, '-H', `Host: ${host}`, '-H', 'Expect:', '-T', file]
  const child = spawn('curl', [...options, `${url}/`], { stdio: ['ignore', 'pipe', 'inherit'] })
  let text = ''
  for await (const chunk of child.stdout) text += chunk
  const [size, status, speed] = text.split(' ')
  if (status !== '200' || Number(size) !== LARGE_BYTES) {
    throw new Error(`the upload answered ${text}`)
  }
  return Number(speed) / 1_000_000
}

/** Resident memory of a process in MB. */
export function residentMb(pid: number): number {
  const kb = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]
  return Number(kb) / 1_024
}

/** User and system time of a process so far, in milliseconds (clock ticks are 10 ms). */
export function cpuMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? []
  return (Number(fields[11]) + Number(fields[12])) * 10
}

/** What all threads of a process have had of a processor, in microseconds. */
export function processUs(pid: number): number {
  const folder = `/proc/${pid}/task`
  let ns = 0
  for (const thread of readdirSync(folder)) {
    ns += Number(readFileSync(`${folder}/${thread}/schedstat`, 'utf8').split(' ')[0])
  }
  return ns / 1_000
}

/** What the thread of a process has had of a processor: neighbours on the machine do not count. */
export function threadMs(pid: number): number {
  const [ns = '0'] = readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'utf8').split(' ')
  return Number(ns) / 1e6
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5)
}

export function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN
}

/** A line on stderr that the next one replaces; plain lines where stderr is no terminal. */
export function progress(text: string): void {
  process.stderr.write(process.stderr.isTTY ? `\r\u001b[K${text}` : `${text}\n`)
}

/** A Markdown table, columns padded so that it reads well in a terminal too. */
export function printTable(head: readonly string[], rows: readonly (readonly string[])[]): void {
  const widths = head.map((cell, column) =>
    Math.max(cell.length, ...rows.map((row) => row[column]?.length ?? 0)),
  )
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(' | ')} |`
  console.log(line(head))
  console.log(`|${widths.map((width) => '-'.repeat(width + 2)).join('|')}|`)
  for (const row of rows) console.log(line(row))
}
