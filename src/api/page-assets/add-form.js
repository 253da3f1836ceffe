import { ask } from './api.js'
import { openForm, selectField, textField } from './dialog.js'
import { element } from './element.js'

/** Asks for a tunnel and makes it; resolves with it, or undefined. */
export function openAddForm() {
  const policy = element('textarea', {
    id: 'field-policy',
    name: 'policy',
    rows: '6',
    spellcheck: 'false',
    autocapitalize: 'none',
    'aria-describedby': 'hint-policy',
  })
  return openForm({
    title: 'Add a tunnel',
    action: 'Add tunnel',
    fields: [
      selectField({
        name: 'protocol',
        label: 'Type',
        options: [
          ['http', 'Web pages and APIs (HTTP)'],
          ['tcp', 'TCP connections, such as SSH'],
        ],
      }),
      textField({
        name: 'domain',
        label: 'Public name',
        placeholder: 'cam.site.example.com',
        hint: 'A host name that the authtoken of this device allows. For TCP: host:port, or leave empty.',
      }),
      textField({
        name: 'forwards_to',
        label: 'Service on this device',
        placeholder: 'localhost:8001',
        hint: 'Address of the service: host:port, port, https://host:port or unix:/path.',
      }),
      element(
        'details',
        { class: 'field' },
        element('summary', {}, 'Traffic policy'),
        element('label', { for: 'field-policy', class: 'visually-hidden' }, 'Traffic policy'),
        policy,
        element(
          'p',
          { class: 'hint', id: 'hint-policy' },
          'JSON or YAML. Leave empty for the default policy of the device.',
        ),
      ),
    ],
    run: ({ protocol, domain, forwards_to, policy: text }) =>
      ask('POST', 'api/tunnels', {
        body: {
          protocol,
          forwards_to: forwards_to.trim(),
          ...(domain.trim() !== '' && { domain: domain.trim() }),
          ...(text.trim() !== '' && { policy: text }),
        },
      }),
  })
}
