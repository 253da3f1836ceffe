import { ask } from './api.js'
import { runPage } from './shell.js'
import { doctorView } from './views/doctor-view.js'
import { inspectView } from './views/inspect-view.js'
import { logView } from './views/log-view.js'
import { signInView } from './views/sign-in-view.js'
import { tunnelsView } from './views/tunnels-view.js'

const CODE = /^#code=([\w-]+)$/

void runPage({
  title: 'Device agent',
  views: {
    tunnels: { label: 'Tunnels', make: tunnelsView },
    doctor: { label: 'Doctor', make: doctorView },
    log: { label: 'Log', make: logView },
    inspect: { label: 'Inspector', make: inspectView, isPartOf: 'tunnels' },
  },
  ask,
  enter,
  signInView,
  describe: ({ scope }) => (scope === 'read' ? 'Read only' : ''),
  // Tells the tabs of several devices apart.
  nameOf: ({ hostname }) => hostname,
})

async function enter() {
  const code = takeCode()
  const session = (code && (await signInWith(code))) || (await ask('GET', 'session')).session
  return {
    session,
    notice: code && 'The code in this address has expired. Create a new code on the device.',
  }
}

/** The code of the address that somebody came by; it is good once, and not for the history. */
function takeCode() {
  const code = CODE.exec(location.hash)?.[1]
  if (code) history.replaceState(null, '', location.pathname)
  return code
}

async function signInWith(code) {
  try {
    return (await ask('POST', 'session', { body: { code } })).session
  } catch (error) {
    if (error.code === 'unauthenticated') return undefined
    throw error
  }
}
