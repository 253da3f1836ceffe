// Stand-in for systemctl in a namespace without systemd: starts and stops what the installed unit says.
import { spawn } from 'node:child_process'
import { existsSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'

const PID_FILE = '/var/lib/gateway.pid'
const [command, ...words] = process.argv.slice(2)
const names = words.filter((word) => !word.startsWith('-'))
if (command === 'show') process.stdout.write('Version=252\n')
const hasService = names.some((name) => /^device-gateway(\.service)?$/.test(name))
if (hasService && (command === 'stop' || command === 'restart')) await stop()
if (hasService && (command === 'start' || command === 'restart')) start()

function start() {
  if (existsSync(PID_FILE)) return
  const unit = readFileSync('/etc/systemd/system/device-gateway.service', 'utf8')
  const settings = readFileSync('/etc/device-gateway/gateway.env', 'utf8')
  const line = /^ExecStart=(.*)$/m.exec(unit)[1].split(' ')
  const env = Object.fromEntries(
    settings.split('\n').flatMap((text) => {
      const [, name, value] = /^(\w+)="?([^"]*)"?$/.exec(text) ?? []
      return name ? [[name, value]] : []
    }),
  )
  const log = openSync('/var/lib/gateway.log', 'a')
  const child = spawn(line[0], line.slice(1), {
    detached: true,
    stdio: ['ignore', log, log],
    env: { PATH: process.env.PATH, STATE_DIRECTORY: '/var/lib/device-gateway', ...env },
  })
  child.unref()
  writeFileSync(PID_FILE, String(child.pid))
}

async function stop() {
  if (!existsSync(PID_FILE)) return
  const pid = Number(readFileSync(PID_FILE, 'utf8'))
  rmSync(PID_FILE)
  process.kill(pid, 'SIGTERM')
  while (isRunning(pid)) await pause(50)
}

function isRunning(pid) {
  return (
    existsSync(`/proc/${pid}`) && !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'))
  )
}
